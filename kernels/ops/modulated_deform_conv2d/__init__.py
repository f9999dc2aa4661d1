"""Modulated deformable convolution (DCNv2).

Source: Zhu et al., "Deformable ConvNets v2: More Deformable, Better Results", CVPR 2019, section
3.2. For image n, output channel o and output pixel (i, j)

    out[n, o, i, j] = bias[o] + sum over channels c of o's group and taps k of
        weight[o, c, k] * mask[n, d, k, i, j] * bilinear(input[n, c], y, x)
    (y, x) = (i, j) * stride - padding + tap k's (row, column) * dilation + offset[n, d, k, :, i, j]

where d is the deform group that c lies in. A corner outside of the image counts as zero, whatever
the mask. A sample
that touches no pixel (y <= -1, y >= height, x <= -1 or x >= width; infinite and NaN as well) adds
nothing and gets zero gradients. On a whole pixel, slopes are those towards the next pixel.

Sums are kept in float32, in float64 when an input is float64; every gradient has its input's dtype.
Triton multiplies 16-bit inputs with samples rounded to the dtype of `input`.
Autocast casts nothing here: dtypes may be mixed, so a 16-bit input goes with exact offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ... import _validate
from ..._operator import Derived, Operator
from ...common.dtypes import sum_dtype
from ._geometry import Geometry, memory_format

_MAX_PIXELS = 2**31 - 1


class Inputs(NamedTuple):
    """See `modulated_deform_conv2d`; pairs as (vertical, horizontal)."""

    input: Tensor
    offset: Tensor
    mask: Tensor | None
    weight: Tensor
    bias: Tensor | None
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    deform_groups: int

    @property
    def tensors(self) -> list[Tensor]:
        """Those that are given."""
        return [tensor for tensor in self[:5] if tensor is not None]

    @property
    def geometry(self) -> Geometry:
        """The numbers of the convolution."""
        return Geometry(
            self.input.shape[2:],
            self.weight.shape[2:],
            (self.stride[0], self.stride[1]),
            (self.padding[0], self.padding[1]),
            (self.dilation[0], self.dilation[1]),
            self.groups,
            self.deform_groups,
        )

    def check(self) -> None:
        """Raise what `modulated_deform_conv2d` says, of what shapes, dtypes and devices tell."""
        _validate.dtypes(self, ("input", "offset", "mask", "weight", "bias"))
        _validate.rank("input", self.input, "(N, C, H, W)")
        _validate.rank("weight", self.weight, "(O, C / groups, kh, kw)")
        self._check_numbers()
        batch, size = self.input.shape[0], self.geometry.out_size
        samples = self.deform_groups * self.weight.shape[2] * self.weight.shape[3]
        _validate.shapes(
            self,
            ("input", "weight"),
            {
                "offset": (batch, 2 * samples, *size),
                "mask": (batch, samples, *size),
                "bias": (self.weight.shape[0],),
            },
        )
        _validate.devices(self)

    def _check_numbers(self) -> None:
        for name, least in (("stride", 1), ("padding", 0), ("dilation", 1)):
            pair = tuple(getattr(self, name))
            if min(pair) < least:
                raise ValueError(f"{name} must be {least} or more, not {pair}")
        channels, out_channels = self.input.shape[1], self.weight.shape[0]
        if min(channels, *self.weight.shape) < 1:
            raise ValueError(
                "input and weight must have channels and taps, not "
                f"{tuple(self.input.shape)} and {tuple(self.weight.shape)}"
            )
        group_in = self.weight.shape[1]
        if self.groups < 1 or out_channels % self.groups or channels != group_in * self.groups:
            raise ValueError(
                f"groups ({self.groups}) must divide weight's {out_channels} out channels, and its "
                f"{group_in} channels times groups be input's {channels}"
            )
        if self.deform_groups < 1 or channels % self.deform_groups:
            raise ValueError(
                f"deform_groups ({self.deform_groups}) must divide input's {channels} channels"
            )
        if min(self.geometry.out_size) < 1:
            raise ValueError(
                f"input {tuple(self.input.shape)} is too small for weight "
                f"{tuple(self.weight.shape)} with padding {tuple(self.padding)} and dilation "
                f"{tuple(self.dilation)}"
            )
        if self.input.shape[2] * self.input.shape[3] > _MAX_PIXELS:
            raise ValueError(
                f"input must have fewer than 2**31 pixels, not {tuple(self.input.shape)}"
            )

    def result(self) -> Tensor:
        """(N, O, Hout, Wout) in the memory format of `input`, with numbers yet to be written."""
        return torch.empty(
            (self.input.shape[0], self.weight.shape[0], *self.geometry.out_size),
            dtype=self.input.dtype,
            device=self.input.device,
            memory_format=memory_format(self.input),
        )

    def trivial_result(self) -> Tensor | None:
        """The bias where there is no sample."""
        if self.input.numel():
            return None
        out = self.result()
        return out.zero_() if self.bias is None else out.copy_(self.bias.view(-1, 1, 1))


def _of_bias(grad_out: Tensor, inputs: Inputs, grads: dict[str, Tensor]) -> Tensor:
    assert inputs.bias is not None
    sums = sum_dtype(grad_out, *inputs.tensors)
    return grad_out.sum((0, 2, 3), dtype=sums).to(inputs.bias.dtype)


def _flops(input: list[int], offset: list[int], mask: object, weight: list[int], *_: object) -> int:
    """The samples' corners, and the product with the weights."""
    batch, _offsets, height, width = offset
    pixels, taps = batch * height * width, weight[2] * weight[3]
    return pixels * taps * (8 * input[1] + 2 * weight[0] * weight[1])


_operator = Operator(
    "modulated_deform_conv2d",
    Inputs,
    gradients=("input", "offset", "mask", "weight"),
    derived={"bias": Derived((), _of_bias)},
    flops=_flops,
    gradient_format=torch.preserve_format,
)


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
        TypeError: a dtype, a layout, or what is no tensor or no integer.
        RuntimeError: tensors on several devices; a second or a forward-mode derivative.
    """
    pairs = _pairs(stride, padding, dilation)
    out: Tensor = _operator(input, offset, mask, weight, bias, *pairs, groups, deform_groups)
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
    *,
    wanted: Sequence[bool] = (True, True, True, True),
) -> tuple[Tensor | None, ...]:
    """The gradients of `modulated_deform_conv2d`, given that of its result.

    Args:
        grad_out: (N, O, Hout, Wout), any floating dtype; the others as in
            `modulated_deform_conv2d`.
        wanted: which of the gradients, in the order in which they are returned.

    Returns:
        One gradient each for input, offset, mask (None when it is None) and weight, in their dtypes
        and memory formats; None where not wanted. That of the bias is `grad_out` summed over all
        but its channels.
    """
    pairs = _pairs(stride, padding, dilation)
    grads = _operator.backward(
        grad_out, input, offset, mask, weight, None, *pairs, groups, deform_groups, wanted=wanted
    )
    grad_input, grad_offset, grad_mask, grad_weight = grads
    return grad_input, grad_offset, None if mask is None else grad_mask, grad_weight


def _pairs(
    stride: int | Sequence[int], padding: int | Sequence[int], dilation: int | Sequence[int]
) -> list[list[int]]:
    numbers = {"stride": stride, "padding": padding, "dilation": dilation}
    return [_pair(name, number) for name, number in numbers.items()]


def _pair(name: str, number: int | Sequence[int]) -> list[int]:
    pair = list(number) if isinstance(number, Sequence) else [number, number]
    if len(pair) == 1:
        pair *= 2
    if len(pair) != 2:
        raise ValueError(f"{name} must be one number or two, not {number}")
    return pair
