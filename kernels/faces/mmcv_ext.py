"""The functions of mmcv 1.x's compiled module `mmcv._ext` that the operators here stand in for.

Argument names and order are mmcv's, and so is who allocates: the results go into tensors that the
caller hands over. Scratch tensors (`ones`, `columns`) and `im2col_step` mean nothing here. All is
outside of autograd.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.modulated_deform_conv2d import (
    modulated_deform_conv2d,
    modulated_deform_conv2d_backward,
)
from .mmcv import ms_deform_attn_backward, ms_deform_attn_forward

__all__ = [
    "modulated_deform_conv_backward",
    "modulated_deform_conv_forward",
    "ms_deform_attn_backward",
    "ms_deform_attn_forward",
]


def modulated_deform_conv_forward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    output: Tensor,
    columns: Tensor,
    kernel_h: int,
    kernel_w: int,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    group: int,
    deformable_group: int,
    with_bias: bool,
) -> None:
    """Writes the result into `output`; `bias` is read where `with_bias` says so.

    Shapes and errors are those of `modulated_deform_conv2d`; another kernel than that of `weight`
    is a ValueError.
    """
    _check_kernel(weight, kernel_h, kernel_w)
    with torch.no_grad():
        result = modulated_deform_conv2d(
            input,
            offset,
            mask,
            weight,
            bias if with_bias else None,
            (stride_h, stride_w),
            (pad_h, pad_w),
            (dilation_h, dilation_w),
            group,
            deformable_group,
        )
        output.view(result.shape).copy_(result)


def modulated_deform_conv_backward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    columns: Tensor,
    grad_input: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    grad_offset: Tensor,
    grad_mask: Tensor,
    grad_output: Tensor,
    kernel_h: int,
    kernel_w: int,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    group: int,
    deformable_group: int,
    with_bias: bool,
) -> None:
    """Adds to the gradients of input, weight and (`with_bias`) bias; writes those of the others."""
    _check_kernel(weight, kernel_h, kernel_w)
    with torch.no_grad():
        to_input, to_offset, to_mask, to_weight = modulated_deform_conv2d_backward(
            grad_output,
            input,
            offset,
            mask,
            weight,
            (stride_h, stride_w),
            (pad_h, pad_w),
            (dilation_h, dilation_w),
            group,
            deformable_group,
        )
        assert to_input is not None
        assert to_offset is not None
        assert to_mask is not None
        assert to_weight is not None
        grad_input.add_(to_input)
        grad_weight.add_(to_weight)
        grad_offset.copy_(to_offset)
        grad_mask.copy_(to_mask)
        if with_bias:
            grad_bias.add_(grad_output.sum((0, 2, 3)))


def _check_kernel(weight: Tensor, kernel_h: int, kernel_w: int) -> None:
    if tuple(weight.shape[2:]) != (kernel_h, kernel_w):
        raise ValueError(
            f"weight {tuple(weight.shape)} is not one of a {kernel_h} x {kernel_w} kernel"
        )
