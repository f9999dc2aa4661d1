"""Spatial cross-attention: bird's-eye-view queries look into the cameras that see them.

Source: Li et al., "BEVFormer", ECCV 2022, equation 4, with the deformable attention of Zhu et al.,
"Deformable DETR", ICLR 2021. For batch item b, query q, head h

    out[b, q, h, :] = 1 / max(1, count) * sum over cameras n that see q, levels l and points p of
        softmax(logits[b, q, h])[l, p] * bilinear(value[b, n, level l, h, :], location[n, l, p])
    location[n, l, p] =
        reference_points_cam[n, b, q, p % Z] + offsets[b, q, h, l, p] / (width, height)

A camera sees a query when any of the query's Z heights is visible to it, and count is the number of
those cameras. Pixels, borders, sums, dtypes and autocast are as in `ms_deform_attn`. A query that
no camera sees gets zeros.

Offsets and logits belong to the query, so no camera needs copies of them, and the list of queries
that a camera sees never leaves the device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _checks, spatial_cross_attention_cpu, spatial_cross_attention_torch
from ._dispatch import uses_cpu_library, uses_triton


def spatial_cross_attention(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points_cam: Tensor,
    visibility: Tensor,
    *,
    first_item_visibility: bool = False,
) -> Tensor:
    """Sample the cameras that see a query around its projections, and average over them.

    Args:
        value: (B, N, S, H, D) of N cameras, the levels one after the other in S; D a multiple of 4
            up to 256.
        spatial_shapes: (L, 2) integers, each level's (height, width).
        level_start_index: (L,) integers, each level's first row in S.
        offsets: (B, Q, H, L, P, 2) as (x, y) in pixels of their level; P a multiple of Z.
        logits: (B, Q, H, L * P), before the softmax.
        reference_points_cam: (N, B, Q, Z, 2) as (x, y), 0 to 1 across the image; has no gradient.
        visibility: (N, B, Q, Z) bool or integers, zero where the camera does not see the point.
        first_item_visibility: sum over the cameras that see the query in the *first* item of the
            batch, and divide by each item's own count, as the official BEVFormer does.

    Floating-point inputs are float16, bfloat16, float32 or float64, each of its own dtype.

    Returns:
        (B, Q, H * D) in the dtype of `value`.

    Raises:
        ValueError: a shape, or a level that does not lie inside `value` (seen for CPU tensors only:
            reading it elsewhere would wait for the device).
        TypeError: a dtype.
        RuntimeError: tensors on several devices; reference points that require a gradient; a second
            derivative.
    """
    _checks.refuse_gradient("reference_points_cam", reference_points_cam)
    out: Tensor = _forward(
        value,
        spatial_shapes,
        level_start_index,
        offsets,
        logits,
        reference_points_cam,
        visibility,
        first_item_visibility,
    )
    return out


def spatial_cross_attention_backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points_cam: Tensor,
    visibility: Tensor,
    *,
    first_item_visibility: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `spatial_cross_attention`, given that of its result.

    Args:
        grad_out: (B, Q, H * D), any floating dtype; the others as in `spatial_cross_attention`.

    Returns:
        One gradient each for value, offsets and logits, in their dtypes.
    """
    grads: tuple[Tensor, Tensor, Tensor] = _backward(
        grad_out,
        value,
        spatial_shapes,
        level_start_index,
        offsets,
        logits,
        reference_points_cam,
        visibility,
        first_item_visibility,
    )
    return grads


@torch.library.custom_op("turbo_physai::spatial_cross_attention", mutates_args=())
def _forward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points_cam: Tensor,
    visibility: Tensor,
    first_item_visibility: bool,
) -> Tensor:
    maps = (value, spatial_shapes, level_start_index)
    inputs = (*maps, offsets, logits, reference_points_cam, visibility)
    _check(*inputs)
    _checks.check_levels(*maps)
    if value.numel() == 0 or logits.numel() == 0 or visibility.numel() == 0:
        return value.new_zeros(_out_shape(value, offsets))
    if uses_triton(value, offsets, logits, reference_points_cam):
        from . import spatial_cross_attention_triton

        return spatial_cross_attention_triton.forward(
            *inputs, first_item_visibility=first_item_visibility
        )
    if uses_cpu_library("spatial_cross_attention", value):
        return spatial_cross_attention_cpu.forward(
            *inputs, first_item_visibility=first_item_visibility
        )
    return spatial_cross_attention_torch.forward(
        *inputs, first_item_visibility=first_item_visibility
    )


@torch.library.custom_op("turbo_physai::spatial_cross_attention_backward", mutates_args=())
def _backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points_cam: Tensor,
    visibility: Tensor,
    first_item_visibility: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    maps = (value, spatial_shapes, level_start_index)
    inputs = (*maps, offsets, logits, reference_points_cam, visibility)
    _check(*inputs)
    _checks.check_grad(grad_out, value, _out_shape(value, offsets))
    _checks.check_levels(*maps)
    if value.numel() == 0 or logits.numel() == 0 or visibility.numel() == 0:
        return (
            value.new_zeros(value.shape),
            offsets.new_zeros(offsets.shape),
            logits.new_zeros(logits.shape),
        )
    if uses_triton(grad_out, value, offsets, logits, reference_points_cam):
        from . import spatial_cross_attention_triton

        return spatial_cross_attention_triton.backward(
            grad_out,
            *inputs,
            first_item_visibility=first_item_visibility,
            deterministic=torch.are_deterministic_algorithms_enabled(),
        )
    if uses_cpu_library("spatial_cross_attention", value):
        return spatial_cross_attention_cpu.backward(
            grad_out, *inputs, first_item_visibility=first_item_visibility
        )
    return spatial_cross_attention_torch.backward(
        grad_out, *inputs, first_item_visibility=first_item_visibility
    )


@_forward.register_fake
def _forward_fake(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points_cam: Tensor,
    visibility: Tensor,
    first_item_visibility: bool,
) -> Tensor:
    maps = (value, spatial_shapes, level_start_index)
    _check(*maps, offsets, logits, reference_points_cam, visibility)
    return value.new_empty(_out_shape(value, offsets))


@_backward.register_fake
def _backward_fake(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points_cam: Tensor,
    visibility: Tensor,
    first_item_visibility: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    maps = (value, spatial_shapes, level_start_index)
    _check(*maps, offsets, logits, reference_points_cam, visibility)
    _checks.check_grad(grad_out, value, _out_shape(value, offsets))
    return (
        value.new_empty(value.shape),
        offsets.new_empty(offsets.shape),
        logits.new_empty(logits.shape),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.first_item_visibility = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
    grad_value, grad_offsets, grad_logits = _backward(
        grad_out, *ctx.saved_tensors, ctx.first_item_visibility
    )
    return grad_value, None, None, grad_offsets, grad_logits, None, None, None


def _refuse_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "spatial_cross_attention has a first derivative only; a second one was asked for "
        "(create_graph=True followed by another backward)"
    )


_forward.register_autograd(_differentiate, setup_context=_save)
_backward.register_autograd(_refuse_second_derivative)


def _out_shape(value: Tensor, offsets: Tensor) -> tuple[int, int, int]:
    batch, _, _, heads, dim = value.shape
    return batch, offsets.shape[1], heads * dim


def _check(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points_cam: Tensor,
    visibility: Tensor,
) -> None:
    for name, tensor in (
        ("value", value),
        ("offsets", offsets),
        ("logits", logits),
        ("reference_points_cam", reference_points_cam),
    ):
        _checks.check_dtype(name, tensor, _checks.FLOATS)
    _checks.check_dtype("spatial_shapes", spatial_shapes, _checks.INDICES)
    _checks.check_dtype("level_start_index", level_start_index, _checks.INDICES)
    _checks.check_dtype("visibility", visibility, _checks.FLAGS)

    _checks.check_rank("value", value, "(B, N, S, H, D)")
    _checks.check_rank("offsets", offsets, "(B, Q, H, L, P, 2)")
    _checks.check_rank("reference_points_cam", reference_points_cam, "(N, B, Q, Z, 2)")
    batch, cameras, _, heads, dim = value.shape
    _, queries, _, levels, points, _ = offsets.shape
    heights = reference_points_cam.shape[3]
    _checks.check_head_dim(dim)
    _checks.check_together(
        value,
        ("offsets", offsets),
        (
            ("offsets", offsets, (batch, queries, heads, levels, points, 2)),
            ("logits", logits, (batch, queries, heads, levels * points)),
            ("reference_points_cam", reference_points_cam, (cameras, batch, queries, heights, 2)),
            ("visibility", visibility, (cameras, batch, queries, heights)),
            ("spatial_shapes", spatial_shapes, (levels, 2)),
            ("level_start_index", level_start_index, (levels,)),
        ),
    )
    if heights and points % heights:
        raise ValueError(
            f"offsets must have a multiple of {heights} points, the number of heights of "
            f"reference_points_cam, not {points}"
        )
