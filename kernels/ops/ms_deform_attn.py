"""Multi-scale deformable attention: the operator, its checks, its gradient, its choice of backend.

Source: Zhu et al., "Deformable DETR", ICLR 2021, equation 3. For batch item b, query q, head h

    out[b, q, h, :] = sum over levels l and points p of
        weights[b, q, h, l, p] * bilinear(value[b, level l, h, :], locations[b, q, h, l, p])

A location (x, y) stands for the pixel (x * width - 0.5, y * height - 0.5). A corner outside of its
level counts as zero. A sample that touches no pixel, infinite and NaN locations included, adds
nothing and gets zero gradients. (On the CPU, one that lies just one pixel before its level gets
the slope that `grid_sample` gives there.)

Sums are kept in float32, in float64 when an input is float64; every gradient has its input's dtype.
Autocast casts nothing here: dtypes may be mixed, so 16-bit values go with exact locations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _checks, ms_deform_attn_cpu, ms_deform_attn_torch
from ._dispatch import uses_cpu_library, uses_triton


def ms_deform_attn(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    """Sample every level of `value` bilinearly and sum the samples by their attention weights.

    Args:
        value: (B, S, H, D), the levels one after the other in S; D a multiple of 4 up to 256.
        spatial_shapes: (L, 2) integers, each level's (height, width).
        level_start_index: (L,) integers, each level's first row in S.
        sampling_locations: (B, Q, H, L, P, 2) as (x, y), 0 to 1 across the level.
        attention_weights: (B, Q, H, L, P).

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
        value, spatial_shapes, level_start_index, sampling_locations, attention_weights
    )
    return out


def ms_deform_attn_backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `ms_deform_attn` for value, locations and weights, given that of its result.

    Args:
        grad_out: (B, Q, H * D), any floating dtype; the others as in `ms_deform_attn`.

    Returns:
        One gradient each for value, sampling_locations and attention_weights, in their dtypes.
    """
    grads: tuple[Tensor, Tensor, Tensor] = _backward(
        grad_out, value, spatial_shapes, level_start_index, sampling_locations, attention_weights
    )
    return grads


@torch.library.custom_op("turbo_physai::ms_deform_attn", mutates_args=())
def _forward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    inputs = (value, spatial_shapes, level_start_index, sampling_locations, attention_weights)
    _check(*inputs)
    _checks.check_levels(value, spatial_shapes, level_start_index)
    if value.numel() == 0 or attention_weights.numel() == 0:
        batch, _, heads, dim = value.shape
        return value.new_zeros(batch, sampling_locations.shape[1], heads * dim)
    if uses_triton(value, sampling_locations, attention_weights):
        from . import ms_deform_attn_triton

        return ms_deform_attn_triton.forward(*inputs)
    if uses_cpu_library("ms_deform_attn", value):
        return ms_deform_attn_cpu.forward(*inputs)
    return ms_deform_attn_torch.forward(*inputs)


@torch.library.custom_op("turbo_physai::ms_deform_attn_backward", mutates_args=())
def _backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    inputs = (value, spatial_shapes, level_start_index, sampling_locations, attention_weights)
    _check(*inputs)
    _check_grad(grad_out, value, sampling_locations)
    _checks.check_levels(value, spatial_shapes, level_start_index)
    if value.numel() == 0 or attention_weights.numel() == 0:
        return (
            value.new_zeros(value.shape),
            sampling_locations.new_zeros(sampling_locations.shape),
            attention_weights.new_zeros(attention_weights.shape),
        )
    if uses_triton(grad_out, value, sampling_locations, attention_weights):
        from . import ms_deform_attn_triton

        deterministic = torch.are_deterministic_algorithms_enabled()
        return ms_deform_attn_triton.backward(grad_out, *inputs, deterministic=deterministic)
    if uses_cpu_library("ms_deform_attn", value):
        return ms_deform_attn_cpu.backward(grad_out, *inputs)
    return ms_deform_attn_torch.backward(grad_out, *inputs)


@_forward.register_fake
def _forward_fake(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    _check(value, spatial_shapes, level_start_index, sampling_locations, attention_weights)
    batch, _, heads, dim = value.shape
    return value.new_empty(batch, sampling_locations.shape[1], heads * dim)


@_backward.register_fake
def _backward_fake(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    _check(value, spatial_shapes, level_start_index, sampling_locations, attention_weights)
    _check_grad(grad_out, value, sampling_locations)
    return (
        value.new_empty(value.shape),
        sampling_locations.new_empty(sampling_locations.shape),
        attention_weights.new_empty(attention_weights.shape),
    )


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, grad_out: Tensor) -> tuple[Tensor, None, None, Tensor, Tensor]:
    grad_value, grad_locations, grad_weights = _backward(grad_out, *ctx.saved_tensors)
    return grad_value, None, None, grad_locations, grad_weights


def _refuse_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "ms_deform_attn has a first derivative only; a second one was asked for "
        "(create_graph=True followed by another backward)"
    )


_forward.register_autograd(_differentiate, setup_context=_save)
_backward.register_autograd(_refuse_second_derivative)


def _check(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> None:
    for name, tensor in (
        ("value", value),
        ("sampling_locations", sampling_locations),
        ("attention_weights", attention_weights),
    ):
        _checks.check_dtype(name, tensor, _checks.FLOATS)
    _checks.check_dtype("spatial_shapes", spatial_shapes, _checks.INDICES)
    _checks.check_dtype("level_start_index", level_start_index, _checks.INDICES)

    _checks.check_rank("value", value, "(B, S, H, D)")
    _checks.check_rank("sampling_locations", sampling_locations, "(B, Q, H, L, P, 2)")
    batch, _, heads, dim = value.shape
    _, queries, _, levels, points, _ = sampling_locations.shape
    _checks.check_head_dim(dim)
    _checks.check_together(
        value,
        ("sampling_locations", sampling_locations),
        (
            ("sampling_locations", sampling_locations, (batch, queries, heads, levels, points, 2)),
            ("attention_weights", attention_weights, (batch, queries, heads, levels, points)),
            ("spatial_shapes", spatial_shapes, (levels, 2)),
            ("level_start_index", level_start_index, (levels,)),
        ),
    )


def _check_grad(grad_out: Tensor, value: Tensor, sampling_locations: Tensor) -> None:
    batch, _, heads, dim = value.shape
    _checks.check_grad(grad_out, value, (batch, sampling_locations.shape[1], heads * dim))
