"""The definition of `modulated_deform_conv2d`, for float64 and for exporters; autograd
differentiates it."""

from __future__ import annotations

import torch
from torch import Tensor

from ...common.reference import corner
from . import Inputs
from ._geometry import Geometry


def forward(inputs: Inputs) -> Tensor:
    """(N, O, Hout, Wout), computed in the dtype of the inputs, with all columns at once."""
    input, offset, mask, weight, bias = inputs[:5]
    batch, channels, height, width = input.shape
    groups, deform_groups = inputs.groups, inputs.deform_groups
    out_size = inputs.geometry.out_size
    y, x = (axis.to(input.device) for axis in grid(inputs.geometry))
    shifts = offset.view(batch, deform_groups, -1, 2, *out_size)
    y, x = y + shifts[:, :, :, 0], x + shifts[:, :, :, 1]
    touches = (y > -1) & (y < height) & (x > -1) & (x < width)  # False for NaN
    y, x = y.where(touches, 0), x.where(touches, 0)
    share = input.new_ones(()) if mask is None else mask.view(batch, deform_groups, -1, *out_size)
    pixels = input.reshape(batch, deform_groups, channels // deform_groups, -1)
    columns = input.new_zeros(())
    for below in (0, 1):
        for right in (0, 1):
            pixel, inside, factor = corner(x, y, width, height, right, below)
            inside = inside & touches
            index = pixel.flatten(2).unsqueeze(2).expand(-1, -1, pixels.shape[2], -1)
            read = pixels.gather(3, index).view(*index.shape[:3], *y.shape[2:])
            scale = (factor * share).where(inside, 0).unsqueeze(2)
            columns = columns + read.where(inside.unsqueeze(2), 0) * scale
    columns = columns.reshape(batch, groups, channels // groups * inputs.geometry.taps, -1)
    weights = weight.reshape(groups, weight.shape[0] // groups, -1)
    out = torch.einsum("goc,ngcp->ngop", weights, columns).reshape(batch, -1, *out_size)
    return out if bias is None else out + bias.view(-1, 1, 1)


def grid(geometry: Geometry) -> tuple[Tensor, Tensor]:
    """y and x of every tap without offsets, (taps, Hout, Wout)."""
    taps = torch.arange(geometry.taps).view(-1, 1, 1)
    height, width = geometry.out_size
    lines, columns = torch.arange(height).view(-1, 1), torch.arange(width)
    y = lines * geometry.stride[0] - geometry.padding[0]
    x = columns * geometry.stride[1] - geometry.padding[1]
    y = y + taps // geometry.kernel[1] * geometry.dilation[0]
    x = x + taps % geometry.kernel[1] * geometry.dilation[1]
    shape = (geometry.taps, height, width)
    return y.expand(shape), x.expand(shape)
