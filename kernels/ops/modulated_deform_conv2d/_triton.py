"""`modulated_deform_conv2d` in Triton: products of matrices without columns.

A program owns a tile of output pixels, and samples what a column buffer would hold straight into an
operand of the product, one tap and one block of channels at a time. Everything is read with its
channels last, so a sample's channels are one run of memory. Sums are float32; operands have the
dtype of `input`, float32 ones as exact as `torch.backends.cuda.matmul` asks for.

A "run" is the channels that share a group as well as a deform group: a block lies in one run.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from ...common.triton import launch
from . import Inputs, _torch
from . import _triton_kernels as kernels
from ._geometry import Geometry, memory_format

PIXELS = 64
"""Output pixels of a tile. Wider tiles sample less often, and none of these sizes spills."""
_IN, _OUT, _OUT_OF_DATA = 32, 128, 64
"""The most channels of a tile: going in, coming out, and coming out where the sum is over them."""
_WARPS = 8
_PROGRAMS = 1024
"""Of the gradient of the weights: few enough additions, and enough programs to fill a GPU."""


def options(*, of_data: bool = False, hip: bool | None = None) -> dict[str, Any]:
    """Launch options. Untold, NVIDIA's assembler may spill some registers in the kernel for the
    gradients of input, offset and mask, to get by with 128."""
    return launch.options(_WARPS, 255 if of_data else None, hip=hip, num_stages=1)


def forward(inputs: Inputs) -> Tensor:
    """See `modulated_deform_conv2d`."""
    launch.check_dtypes(*inputs)
    image, bias, out = inputs.input, inputs.bias, inputs.result()
    sizes = _Sizes(inputs)
    with launch.device_of(image):
        kernels.forward_kernel[(sizes.tiles, sizes.out_tiles)](
            out,
            _channels_last(image),
            inputs.offset.contiguous(),
            None if inputs.mask is None else inputs.mask.contiguous(),
            _weights(inputs.weight, image.dtype),
            None if bias is None else bias.contiguous(),
            *sizes.arguments,
            OUT_LAST=memory_format(out) == torch.channels_last,
            **sizes.constants,
            **options(),
        )
    return out


def backward(
    grad_out: Tensor, inputs: Inputs, wanted: Sequence[bool] = (True, True, True, True)
) -> tuple[Tensor | None, ...]:
    """The gradients of input, offset, mask and weight, None where not wanted.

    Those of input and weight are added up in the order that programs happen to run in; where torch
    is set to deterministic algorithms, PyTorch's own operators compute.
    """
    if torch.are_deterministic_algorithms_enabled():
        return _torch.backward(grad_out, inputs, wanted)
    launch.check_dtypes(grad_out, *inputs)
    of_input, of_offset, of_mask, of_weight = wanted
    sizes = _Sizes(inputs)
    tensors = [
        _channels_last(grad_out.to(inputs.input.dtype)),
        _channels_last(inputs.input),
        inputs.offset.contiguous(),
        None if inputs.mask is None else inputs.mask.contiguous(),
    ]
    grads: tuple[Tensor | None, ...] = (None, None, None)
    if of_input or of_offset or of_mask:
        grads = _backward_data(inputs, tensors, sizes, of_input)
    return (*grads, _backward_weight(inputs, tensors, sizes) if of_weight else None)


def _backward_data(
    inputs: Inputs, tensors: list[Any], sizes: _Sizes, of_input: bool
) -> tuple[Tensor | None, ...]:
    _, image, offset, mask = tensors
    # 16-bit sums would lose most of what many samples add to one pixel.
    image_sums = torch.zeros_like(image, dtype=torch.float32) if of_input else None
    grad_offset = torch.empty_like(offset)
    grad_mask = None if mask is None else torch.empty_like(mask)
    with launch.device_of(image):
        kernels.backward_data_kernel[(sizes.tiles, sizes.taps * inputs.deform_groups)](
            image_sums,
            grad_offset,
            grad_mask,
            *tensors,
            _weights(inputs.weight, image.dtype),
            *sizes.arguments,
            **of_data(sizes.constants),
            **options(of_data=True),
        )
    found = (image_sums, grad_offset, grad_mask)
    return tuple(
        None if grad is None or like is None else torch.empty_like(like).copy_(grad)
        for grad, like in zip(found, inputs[:3], strict=True)
    )


def _backward_weight(inputs: Inputs, tensors: list[Any], sizes: _Sizes) -> Tensor:
    weights = _weights(inputs.weight, inputs.input.dtype)
    weight_sums = torch.zeros_like(weights, dtype=torch.float32)
    programs = sizes.taps * sizes.blocks * sizes.out_tiles
    parts = min(sizes.tiles, triton.cdiv(_PROGRAMS, programs))
    with launch.device_of(weights):
        kernels.backward_weight_kernel[(sizes.taps * sizes.blocks, sizes.out_tiles, parts)](
            weight_sums, *tensors, *sizes.arguments, **sizes.constants, **options()
        )
    return torch.empty_like(inputs.weight).copy_(weight_sums.permute(0, 3, 1, 2))


class _Sizes:
    """What the kernels are launched with."""

    def __init__(self, inputs: Inputs) -> None:
        input, weight, geometry = inputs.input, inputs.weight, inputs.geometry
        height, width = geometry.out_size
        pixels = input.shape[0] * height * width
        self.arguments = [pixels, *geometry.in_size, height, width]
        self.arguments += [*geometry.stride, *geometry.padding, *geometry.dilation]
        self.constants = constants((input.shape[1], weight.shape[0]), geometry, precision())
        self.taps = geometry.taps
        self.tiles = triton.cdiv(pixels, PIXELS)
        self.out_tiles = geometry.groups * triton.cdiv(
            self.constants["GROUP_OUT"], self.constants["OUTS"]
        )
        run = self.constants["RUN"]
        self.blocks = weight.shape[1] // run * triton.cdiv(run, self.constants["BLOCK"])


def constants(channels: tuple[int, int], geometry: Geometry, precision: str) -> dict[str, Any]:
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
        "TAPS": geometry.taps,
        "KERNEL_W": geometry.kernel[1],
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
    matmul: Any = torch.backends.cuda.matmul
    if not hasattr(matmul, "fp32_precision"):  # before torch 2.9
        return "tf32" if matmul.allow_tf32 else "ieee"
    return "tf32" if matmul.fp32_precision == "tf32" else "ieee"


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
