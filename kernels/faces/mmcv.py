"""`ms_deform_attn` and `modulated_deform_conv2d` as mmcv and BEVFormer call them.

`im2col_step` stands in every contract and means nothing here: any batch goes in one launch.
Argument names are mmcv 1.x's, so calls by keyword work too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..ops import modulated_deform_conv2d as deform_conv
from ..ops import ms_deform_attn as op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Gradients = tuple[Tensor | None, None, None, Tensor | None, Tensor | None, None]


def _forward(autocast_dtype: torch.dtype | None) -> Callable[..., Tensor]:
    """A Function's `forward` that casts floating inputs to `autocast_dtype` where autocast is on.

    Autograd casts the gradients back to the dtypes of the inputs.
    """

    def forward(
        ctx: Any,
        value: Tensor,
        value_spatial_shapes: Tensor,
        value_level_start_index: Tensor,
        sampling_locations: Tensor,
        attention_weights: Tensor,
        im2col_step: int = 64,
    ) -> Tensor:
        """(bs, keys, heads, dim), (L, 2), (L,), (bs, q, heads, L, P, 2), (bs, q, heads, L, P)
        -> (bs, q, heads * dim)"""
        if autocast_dtype is not None and torch.is_autocast_enabled(value.device.type):
            value = value.to(autocast_dtype)
            sampling_locations = sampling_locations.to(autocast_dtype)
            attention_weights = attention_weights.to(autocast_dtype)
        inputs = (
            value,
            value_spatial_shapes,
            value_level_start_index,
            sampling_locations,
            attention_weights,
        )
        ctx.save_for_backward(*inputs)
        return op.ms_deform_attn(*inputs)

    return forward


class MultiScaleDeformableAttnFunction(Function):
    """`mmcv.ops.multi_scale_deform_attn.MultiScaleDeformableAttnFunction`."""

    forward = staticmethod(_forward(None))

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Gradients:
        """Six gradients, those of value, locations and weights at 0, 3 and 4."""
        wanted = [ctx.needs_input_grad[i] for i in (0, 3, 4)]
        grads = op.ms_deform_attn_backward(grad_output, *ctx.saved_tensors, wanted=wanted)
        return grads[0], None, None, grads[1], grads[2], None


class MultiScaleDeformableAttnFunction_fp32(MultiScaleDeformableAttnFunction):
    """BEVFormer's Function of that name: float32 under autocast."""

    forward = staticmethod(_forward(torch.float32))


class MultiScaleDeformableAttnFunction_fp16(MultiScaleDeformableAttnFunction):
    """BEVFormer's Function of that name: float16 under autocast."""

    forward = staticmethod(_forward(torch.float16))


def multi_scale_deformable_attn_pytorch(
    value: Tensor,
    value_spatial_shapes: Tensor | Sequence[tuple[int, int]],
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    """`mmcv.ops.multi_scale_deform_attn.multi_scale_deformable_attn_pytorch`, with gradients.

    Args:
        value_spatial_shapes: (L, 2) as (height, width); the levels follow each other in `value`.

    Returns:
        (bs, q, heads * dim)
    """
    shapes = torch.as_tensor(value_spatial_shapes, device=value.device)
    sizes = shapes.prod(1)
    return op.ms_deform_attn(
        value, shapes, sizes.cumsum(0) - sizes, sampling_locations, attention_weights
    )


def ms_deform_attn_forward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    im2col_step: int = 64,
) -> Tensor:
    """`mmcv._ext.ms_deform_attn_forward`: (bs, q, heads * dim), outside of autograd."""
    with torch.no_grad():
        return op.ms_deform_attn(
            value,
            value_spatial_shapes,
            value_level_start_index,
            sampling_locations,
            attention_weights,
        )


def ms_deform_attn_backward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    grad_output: Tensor,
    grad_value: Tensor,
    grad_sampling_loc: Tensor,
    grad_attn_weight: Tensor,
    im2col_step: int = 64,
) -> None:
    """`mmcv._ext.ms_deform_attn_backward`: writes into the three gradients that it is given."""
    with torch.no_grad():
        grads = op.ms_deform_attn_backward(
            grad_output,
            value,
            value_spatial_shapes,
            value_level_start_index,
            sampling_locations,
            attention_weights,
        )
        for given, grad in zip(
            (grad_value, grad_sampling_loc, grad_attn_weight), grads, strict=True
        ):
            assert grad is not None
            given.copy_(grad)


def modulated_deform_conv2d(
    input: Tensor,
    offset: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    deform_groups: int = 1,
) -> Tensor:
    """`mmcv.ops.modulated_deform_conv.modulated_deform_conv2d`: see the operator of that name.

    As mmcv has it, all is computed in, and the result is of, the dtype of `offset`: under autocast
    that of the convolution which made it.
    """
    input, mask, weight = (t.to(offset.dtype) for t in (input, mask, weight))
    bias = None if bias is None else bias.to(offset.dtype)
    return deform_conv.modulated_deform_conv2d(
        input, offset, mask, weight, bias, stride, padding, dilation, groups, deform_groups
    )


class ModulatedDeformConv2dFunction(Function):
    """`mmcv.ops.modulated_deform_conv.ModulatedDeformConv2dFunction`: dtypes as in
    `modulated_deform_conv2d`, and the memory format of the input is kept."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        offset: Tensor,
        mask: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        deform_groups: int = 1,
    ) -> Tensor:
        """As the operator `modulated_deform_conv2d`."""
        input, mask, weight = (t.to(offset.dtype) for t in (input, mask, weight))
        ctx.save_for_backward(input, offset, mask, weight)
        ctx.numbers = (stride, padding, dilation, groups, deform_groups)
        bias = None if bias is None else bias.to(offset.dtype)
        return deform_conv.modulated_deform_conv2d(input, offset, mask, weight, bias, *ctx.numbers)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        """One gradient for each of the ten inputs."""
        grads = deform_conv.modulated_deform_conv2d_backward(
            grad_output, *ctx.saved_tensors, *ctx.numbers, wanted=ctx.needs_input_grad[:4]
        )
        grad_bias = grad_output.sum((0, 2, 3)) if ctx.needs_input_grad[4] else None
        return (*grads, grad_bias, None, None, None, None, None)
