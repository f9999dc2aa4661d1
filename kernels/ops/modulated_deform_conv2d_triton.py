"""`modulated_deform_conv2d` in Triton, for CUDA devices: products of matrices without columns.

A program owns a tile of output pixels, and samples what a column buffer would hold straight into an
operand of the product, one tap and one block of channels at a time. Everything is read with its
channels last, so a sample's channels are one run of memory. Sums are float32; operands have the
dtype of `input`, float32 ones as exact as `torch.backends.cuda.matmul` asks for.

A "run" is the channels that share a group as well as a deform group: a block lies in one run.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor

from . import _deform_conv_kernels as kernels
from . import _triton_launch as launch
from ._deform_conv_geometry import Geometry, Gradients, empty_out, memory_format

PIXELS = 64
"""Output pixels of a tile. Wider tiles sample less often, and none of these sizes spills."""
_IN, _OUT, _OUT_OF_DATA = 32, 128, 64
"""The most channels of a tile: going in, coming out, and coming out where the sum is over them."""
OPTIONS: dict[str, Any] = {"num_warps": 8, "num_stages": 1, "enable_fp_fusion": True}
"""Launch options. FP fusion is named because its default differs between Tritons."""
OPTIONS_OF_DATA = {**OPTIONS, "maxnreg": 255}
"""Untold, the assembler may spill some registers to get by with 128."""
_PROGRAMS = 1024
"""Of the gradient of the weights: few enough additions, and enough programs to fill a GPU."""


def forward(
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
) -> Tensor:
    """See `modulated_deform_conv2d`."""
    launch.check_dtypes(*(t for t in (input, offset, mask, weight, bias) if t is not None))
    out = empty_out(input, weight, geometry)
    sizes = _Sizes(input, weight, geometry)
    with launch.device_of(input):
        kernels.forward_kernel[(sizes.tiles, sizes.out_tiles)](
            out,
            _channels_last(input),
            offset.contiguous(),
            None if mask is None else mask.contiguous(),
            _weights(weight, input.dtype),
            None if bias is None else bias.contiguous(),
            *sizes.arguments,
            OUT_LAST=memory_format(out) == torch.channels_last,
            **sizes.constants,
            **OPTIONS,
        )
    return out


def backward(
    grad_out: Tensor,
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    geometry: Geometry,
) -> Gradients:
    """See `modulated_deform_conv2d_backward`.

    The gradients of input and weight are added up in the order that programs happen to run in.
    """
    launch.check_dtypes(*(t for t in (grad_out, input, offset, mask, weight) if t is not None))
    sizes = _Sizes(input, weight, geometry)
    image, weights = _channels_last(input), _weights(weight, input.dtype)
    offset_in, mask_in = offset.contiguous(), None if mask is None else mask.contiguous()
    grad = _channels_last(grad_out.to(input.dtype))
    # 16-bit sums would lose most of what many samples add to one pixel.
    image_sums = torch.zeros_like(image, dtype=torch.float32)
    weight_sums = torch.zeros_like(weights, dtype=torch.float32)
    grad_offset = torch.empty_like(offset_in)
    grad_mask = None if mask_in is None else torch.empty_like(mask_in)
    with launch.device_of(input):
        kernels.backward_data_kernel[(sizes.tiles, sizes.taps * geometry.deform_groups)](
            image_sums,
            grad_offset,
            grad_mask,
            grad,
            image,
            offset_in,
            mask_in,
            weights,
            *sizes.arguments,
            **of_data(sizes.constants),
            **OPTIONS_OF_DATA,
        )
        programs = sizes.taps * sizes.blocks * sizes.out_tiles
        parts = min(sizes.tiles, triton.cdiv(_PROGRAMS, programs))
        kernels.backward_weight_kernel[(sizes.taps * sizes.blocks, sizes.out_tiles, parts)](
            weight_sums,
            grad,
            image,
            offset_in,
            mask_in,
            *sizes.arguments,
            **sizes.constants,
            **OPTIONS,
        )
    return (
        torch.empty_like(input).copy_(image_sums),
        torch.empty_like(offset).copy_(grad_offset),
        None if mask is None or grad_mask is None else torch.empty_like(mask).copy_(grad_mask),
        torch.empty_like(weight).copy_(weight_sums.permute(0, 3, 1, 2)),
    )


class _Sizes:
    """What the kernels are launched with."""

    def __init__(self, input: Tensor, weight: Tensor, geometry: Geometry) -> None:
        height, width = geometry.out_size(input, weight)
        pixels = input.shape[0] * height * width
        self.arguments = [pixels, *input.shape[2:], height, width]
        self.arguments += [*geometry.stride, *geometry.padding, *geometry.dilation]
        self.constants = constants(
            (input.shape[1], weight.shape[0]), tuple(weight.shape[2:]), geometry, precision()
        )
        self.taps = weight.shape[2] * weight.shape[3]
        self.tiles = triton.cdiv(pixels, PIXELS)
        self.out_tiles = geometry.groups * triton.cdiv(
            self.constants["GROUP_OUT"], self.constants["OUTS"]
        )
        run = self.constants["RUN"]
        self.blocks = weight.shape[1] // run * triton.cdiv(run, self.constants["BLOCK"])


def constants(
    channels: tuple[int, int], kernel: tuple[int, ...], geometry: Geometry, precision: str
) -> dict[str, Any]:
    """The numbers that are compiled in.

    Args:
        channels: of `input` and of the result.
    """
    group_in, group_out = (number // geometry.groups for number in channels)
    deform_in = channels[0] // geometry.deform_groups
    run = math.gcd(group_in, deform_in)
    return {
        "GROUPS": geometry.groups,
        "DEFORM_GROUPS": geometry.deform_groups,
        "GROUP_IN": group_in,
        "GROUP_OUT": group_out,
        "RUN": run,
        "TAPS": math.prod(kernel),
        "KERNEL_W": kernel[1],
        "PIXELS": PIXELS,
        "BLOCK": _tile(run, _IN),
        "OUTS": _tile(group_out, _OUT),
        "PRECISION": precision,
    }


def of_data(constants: dict[str, Any]) -> dict[str, Any]:
    """Those of the kernel for the gradients of input, offset and mask."""
    return {**constants, "OUTS": min(_OUT_OF_DATA, constants["OUTS"])}


def precision() -> str:
    """Of float32 operands: that of `torch.matmul`, by which others multiply weights and columns."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def _tile(channels: int, most: int) -> int:
    """A power of two; products come in sixteens at least."""
    tile = 16
    while tile < min(channels, most):
        tile *= 2
    return tile


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


def _weights(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """(O, kh, kw, C / groups), contiguous."""
    return weight.to(dtype).permute(0, 2, 3, 1).contiguous()
