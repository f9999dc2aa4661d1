"""Temporal self-attention: bird's-eye-view queries look into a queue of such maps.

Source: Li et al., "BEVFormer", ECCV 2022, equation 5, with the deformable attention of Zhu et al.,
"Deformable DETR", ICLR 2021. For batch item b, query q, head h

    out[b, q, h, :] = 1 / T * sum over the T entries t of the queue, levels l and points p of
        softmax(logits[b, q, h, t])[l, p] *
        bilinear(value[b * T + t, level l, h, :], location[t, l, p])
    location[t, l, p] =
        reference_points[b * T + t, q, l] + offsets[b, q, h, t, l, p] / (width, height)

Pixels, borders, sums, dtypes and autocast are as in `ms_deform_attn`.

Offsets and logits are laid out as the linear layers of the official BEVFormer give them, so nothing
is permuted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _checks, temporal_self_attention_cpu, temporal_self_attention_torch
from ._dispatch import uses_cpu_library, uses_triton


def temporal_self_attention(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points: Tensor,
) -> Tensor:
    """Sample every entry of the queue around a query's reference points, and average over them.

    Args:
        value: (B * T, S, H, D), the T entries of an item's queue one after the other, the levels
            one after the other in S; D a multiple of 4 up to 256.
        spatial_shapes: (L, 2) integers, each level's (height, width).
        level_start_index: (L,) integers, each level's first row in S.
        offsets: (B, Q, H, T, L, P, 2) as (x, y) in pixels of their level.
        logits: (B, Q, H, T, L * P), before the softmax of each entry.
        reference_points: (B * T, Q, L, 2) as (x, y), 0 to 1 across the level.

    Floating-point inputs are float16, bfloat16, float32 or float64, each of its own dtype.

    Returns:
        (B, Q, H * D) in the dtype of `value`.

    Raises:
        ValueError: a shape, or a level that does not lie inside `value` (seen for CPU tensors only:
            reading it elsewhere would wait for the device).
        TypeError: a dtype.
        RuntimeError: tensors on several devices; a second derivative.
    """
    out: Tensor = _forward(
        value, spatial_shapes, level_start_index, offsets, logits, reference_points
    )
    return out


def temporal_self_attention_backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `temporal_self_attention`, given that of its result.

    Args:
        grad_out: (B, Q, H * D), any floating dtype; the others as in `temporal_self_attention`.

    Returns:
        One gradient each for value, offsets and logits, in their dtypes.
    """
    grads: tuple[Tensor, Tensor, Tensor] = _backward(
        grad_out, value, spatial_shapes, level_start_index, offsets, logits, reference_points
    )
    return grads


@torch.library.custom_op("turbo_physai::temporal_self_attention", mutates_args=())
def _forward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points: Tensor,
) -> Tensor:
    inputs = (value, spatial_shapes, level_start_index, offsets, logits, reference_points)
    _check(*inputs)
    _checks.check_levels(value, spatial_shapes, level_start_index)
    if value.numel() == 0 or logits.numel() == 0:
        return value.new_zeros(_out_shape(value, offsets))
    if uses_triton(value, offsets, logits, reference_points):
        from . import temporal_self_attention_triton

        return temporal_self_attention_triton.forward(*inputs)
    if uses_cpu_library("temporal_self_attention", value):
        return temporal_self_attention_cpu.forward(*inputs)
    return temporal_self_attention_torch.forward(*inputs)


@torch.library.custom_op("turbo_physai::temporal_self_attention_backward", mutates_args=())
def _backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    inputs = (value, spatial_shapes, level_start_index, offsets, logits, reference_points)
    _check(*inputs)
    _checks.check_grad(grad_out, value, _out_shape(value, offsets))
    _checks.check_levels(value, spatial_shapes, level_start_index)
    if value.numel() == 0 or logits.numel() == 0:
        return (
            value.new_zeros(value.shape),
            offsets.new_zeros(offsets.shape),
            logits.new_zeros(logits.shape),
        )
    if uses_triton(grad_out, value, offsets, logits, reference_points):
        from . import temporal_self_attention_triton

        deterministic = torch.are_deterministic_algorithms_enabled()
        return temporal_self_attention_triton.backward(
            grad_out, *inputs, deterministic=deterministic
        )
    if uses_cpu_library("temporal_self_attention", value):
        return temporal_self_attention_cpu.backward(grad_out, *inputs)
    return temporal_self_attention_torch.backward(grad_out, *inputs)


@_forward.register_fake
def _forward_fake(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points: Tensor,
) -> Tensor:
    _check(value, spatial_shapes, level_start_index, offsets, logits, reference_points)
    return value.new_empty(_out_shape(value, offsets))


@_backward.register_fake
def _backward_fake(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    _check(value, spatial_shapes, level_start_index, offsets, logits, reference_points)
    _checks.check_grad(grad_out, value, _out_shape(value, offsets))
    return (
        value.new_empty(value.shape),
        offsets.new_empty(offsets.shape),
        logits.new_empty(logits.shape),
    )


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
    grad_value, grad_offsets, grad_logits = _backward(grad_out, *ctx.saved_tensors)
    grad_points = None
    if ctx.needs_input_grad[5]:
        _, shapes, _, _, _, points = ctx.saved_tensors
        grad_points = _of_reference_points(grad_offsets, shapes).to(points.dtype)
    return grad_value, None, None, grad_offsets, grad_logits, grad_points


def _of_reference_points(grad_offsets: Tensor, spatial_shapes: Tensor) -> Tensor:
    """A reference point moves all heads and points, and by a level's size where they move by one
    pixel: (B, Q, H, T, L, P, 2) -> (B * T, Q, L, 2)."""
    wide = torch.promote_types(grad_offsets.dtype, torch.float32)
    summed = grad_offsets.sum((2, 5), dtype=wide)  # (B, Q, T, L, 2)
    return summed.transpose(1, 2).flatten(0, 1) * spatial_shapes.flip(-1)


def _refuse_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "temporal_self_attention has a first derivative only; a second one was asked for "
        "(create_graph=True followed by another backward)"
    )


_forward.register_autograd(_differentiate, setup_context=_save)
_backward.register_autograd(_refuse_second_derivative)


def _out_shape(value: Tensor, offsets: Tensor) -> tuple[int, int, int]:
    _, _, heads, dim = value.shape
    return offsets.shape[0], offsets.shape[1], heads * dim


def _check(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points: Tensor,
) -> None:
    for name, tensor in (
        ("value", value),
        ("offsets", offsets),
        ("logits", logits),
        ("reference_points", reference_points),
    ):
        _checks.check_dtype(name, tensor, _checks.FLOATS)
    _checks.check_dtype("spatial_shapes", spatial_shapes, _checks.INDICES)
    _checks.check_dtype("level_start_index", level_start_index, _checks.INDICES)

    _checks.check_rank("value", value, "(B * T, S, H, D)")
    _checks.check_rank("offsets", offsets, "(B, Q, H, T, L, P, 2)")
    rows, _, heads, dim = value.shape
    batch, queries, _, entries, levels, points, _ = offsets.shape
    _checks.check_head_dim(dim)
    if rows != batch * entries:
        raise ValueError(
            f"value must have {batch} * {entries} maps to go with offsets "
            f"{tuple(offsets.shape)}, not {rows}"
        )
    _checks.check_together(
        value,
        ("offsets", offsets),
        (
            ("offsets", offsets, (batch, queries, heads, entries, levels, points, 2)),
            ("logits", logits, (batch, queries, heads, entries, levels * points)),
            ("reference_points", reference_points, (rows, queries, levels, 2)),
            ("spatial_shapes", spatial_shapes, (levels, 2)),
            ("level_start_index", level_start_index, (levels,)),
        ),
    )
