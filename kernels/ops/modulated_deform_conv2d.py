"""Modulated deformable convolution (DCNv2): the operator, its checks, its gradient, its backends.

Source: Zhu et al., "Deformable ConvNets v2: More Deformable, Better Results", CVPR 2019, section
3.2. For image n, output channel o and output pixel (i, j)

    out[n, o, i, j] = bias[o] + sum over channels c of o's group and taps k of
        weight[o, c, k] * mask[n, d, k, i, j] * bilinear(input[n, c], y, x)
    (y, x) = (i, j) * stride - padding + tap k's (row, column) * dilation + offset[n, d, k, :, i, j]

where d is the deform group that c lies in. A corner outside of the image counts as zero. A sample
that touches no pixel (y <= -1, y >= height, x <= -1 or x >= width; infinite and NaN as well) adds
nothing and gets zero gradients. On a whole pixel, slopes are those towards the next pixel.

Sums are kept in float32, in float64 when an input is float64; every gradient has its input's dtype.
Triton multiplies 16-bit inputs with samples rounded to the dtype of `input`.
Autocast casts nothing here: dtypes may be mixed, so a 16-bit input goes with exact offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import modulated_deform_conv2d_cpu, modulated_deform_conv2d_torch
from ._deform_conv_checks import check, check_grad
from ._deform_conv_geometry import Geometry, empty_out
from ._dispatch import sum_dtype, uses_cpu_library, uses_triton


def modulated_deform_conv2d(
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    deform_groups: int = 1,
) -> Tensor:
    """Convolve samples that lie `offset` pixels away from the regular grid, each times its `mask`.

    Args:
        input: (N, C, H, W).
        offset: (N, deform_groups * kh * kw * 2, Hout, Wout) in pixels: per deform group and tap
            (row by row), y and then x.
        mask: (N, deform_groups * kh * kw, Hout, Wout), or None for ones.
        weight: (O, C / groups, kh, kw).
        bias: (O,), or None.
        stride, padding, dilation: a number or (vertical, horizontal).
        groups: of the convolution; divides C and O.
        deform_groups: of channels that share their samples; divides C.

    The tensors are float16, bfloat16, float32 or float64, each of its own dtype.

    Returns:
        (N, O, Hout, Wout) in the dtype and the memory format of `input`.

    Raises:
        ValueError: a shape, or a number of the convolution.
        TypeError: a dtype.
        RuntimeError: tensors on several devices; a second derivative.
    """
    out: Tensor = _forward(
        input,
        offset,
        mask,
        weight,
        bias,
        _pair("stride", stride),
        _pair("padding", padding),
        _pair("dilation", dilation),
        groups,
        deform_groups,
    )
    return out


def modulated_deform_conv2d_backward(
    grad_out: Tensor,
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    deform_groups: int = 1,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """The gradients of `modulated_deform_conv2d`, given that of its result.

    Args:
        grad_out: (N, O, Hout, Wout), any floating dtype; the others as in
            `modulated_deform_conv2d`.

    Returns:
        One gradient each for input, offset, mask (None when it is None) and weight, in their dtypes
        and memory formats. That of the bias is `grad_out` summed over all but its channels.
    """
    grad_input, grad_offset, grad_mask, grad_weight = _backward(
        grad_out,
        input,
        offset,
        mask,
        weight,
        _pair("stride", stride),
        _pair("padding", padding),
        _pair("dilation", dilation),
        groups,
        deform_groups,
    )
    return grad_input, grad_offset, None if mask is None else grad_mask, grad_weight


def _pair(name: str, number: int | Sequence[int]) -> list[int]:
    pair = [number, number] if isinstance(number, int) else list(number)
    if len(pair) == 1:
        pair *= 2
    if len(pair) != 2:
        raise ValueError(f"{name} must be one number or two, not {number}")
    return pair


@torch.library.custom_op("turbo_physai::modulated_deform_conv2d", mutates_args=())
def _forward(
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    deform_groups: int,
) -> Tensor:
    geometry = _geometry(stride, padding, dilation, groups, deform_groups)
    check(input, offset, mask, weight, bias, geometry)
    if input.numel() == 0:
        out = empty_out(input, weight, geometry)
        return out.zero_() if bias is None else out.copy_(bias.view(-1, 1, 1))
    tensors = (input, offset, mask, weight, bias)
    if uses_triton(*_given(*tensors)):
        from . import modulated_deform_conv2d_triton

        return modulated_deform_conv2d_triton.forward(*tensors, geometry)
    if uses_cpu_library("modulated_deform_conv2d", input):
        return modulated_deform_conv2d_cpu.forward(*tensors, geometry)
    return modulated_deform_conv2d_torch.forward(*tensors, geometry)


@torch.library.custom_op("turbo_physai::modulated_deform_conv2d_backward", mutates_args=())
def _backward(
    grad_out: Tensor,
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    deform_groups: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of input, offset, mask (an empty tensor when there is none) and weight."""
    geometry = _geometry(stride, padding, dilation, groups, deform_groups)
    check(input, offset, mask, weight, None, geometry)
    check_grad(grad_out, input, weight, geometry)
    tensors = (grad_out, input, offset, mask, weight)
    if input.numel() == 0:
        return _no_mask_as_empty([_zeros(t) for t in tensors[1:]], input)
    if uses_triton(*_given(*tensors)) and not torch.are_deterministic_algorithms_enabled():
        from . import modulated_deform_conv2d_triton

        grads = modulated_deform_conv2d_triton.backward(*tensors, geometry)
    elif uses_cpu_library("modulated_deform_conv2d", input):
        grads = modulated_deform_conv2d_cpu.backward(*tensors, geometry)
    else:
        grads = modulated_deform_conv2d_torch.backward(*tensors, geometry)
    return _no_mask_as_empty(grads, input)


@_forward.register_fake
def _forward_fake(
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    deform_groups: int,
) -> Tensor:
    geometry = _geometry(stride, padding, dilation, groups, deform_groups)
    check(input, offset, mask, weight, bias, geometry)
    return empty_out(input, weight, geometry)


@_backward.register_fake
def _backward_fake(
    grad_out: Tensor,
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    deform_groups: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    geometry = _geometry(stride, padding, dilation, groups, deform_groups)
    check(input, offset, mask, weight, None, geometry)
    check_grad(grad_out, input, weight, geometry)
    tensors = (input, offset, mask, weight)
    return _no_mask_as_empty([None if t is None else torch.empty_like(t) for t in tensors], input)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    input, offset, mask, weight, bias, *ctx.numbers = inputs
    ctx.save_for_backward(input, offset, mask, weight)
    ctx.bias_dtype = None if bias is None else bias.dtype


def _differentiate(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
    input, offset, mask, weight = ctx.saved_tensors
    grad_input, grad_offset, grad_mask, grad_weight = _backward(
        grad_out, input, offset, mask, weight, *ctx.numbers
    )
    grad_bias = None
    if ctx.bias_dtype is not None:
        sums = sum_dtype(*_given(grad_out, input, offset, mask, weight))
        grad_bias = grad_out.sum((0, 2, 3), dtype=sums).to(ctx.bias_dtype)
    return (
        grad_input,
        grad_offset,
        None if mask is None else grad_mask,
        grad_weight,
        grad_bias,
        *(None for _ in ctx.numbers),
    )


def _refuse_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "modulated_deform_conv2d has a first derivative only; a second one was asked for "
        "(create_graph=True followed by another backward)"
    )


_forward.register_autograd(_differentiate, setup_context=_save)
_backward.register_autograd(_refuse_second_derivative)


def _geometry(
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    deform_groups: int,
) -> Geometry:
    pairs = [(numbers[0], numbers[1]) for numbers in (stride, padding, dilation)]
    return Geometry(pairs[0], pairs[1], pairs[2], groups, deform_groups)


def _given(*tensors: Tensor | None) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor is not None]


def _zeros(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else torch.zeros_like(tensor)


def _no_mask_as_empty(
    grads: Sequence[Tensor | None], input: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What a registered operator may return: a tensor also where there is no mask."""
    one, two, three, four = (input.new_empty(0) if grad is None else grad for grad in grads)
    return one, two, three, four
