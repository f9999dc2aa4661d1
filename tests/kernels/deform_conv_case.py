"""Random inputs of modulated_deform_conv2d, and its definition in float64 for autograd."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from turbo_physai.kernels.ops._deform_conv_geometry import Geometry


class Case(NamedTuple):
    input: Tensor
    offset: Tensor
    mask: Tensor | None
    weight: Tensor
    bias: Tensor | None
    geometry: Geometry

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None]:
        return self[:5]

    def arguments(self) -> tuple[object, ...]:
        """As `modulated_deform_conv2d` takes them."""
        return (*self.tensors, *self.geometry)

    def grad_out(self) -> Tensor:
        """Random, in the dtype of the result."""
        size = self.geometry.out_size(self.input, self.weight)
        return torch.randn(self.input.shape[0], self.weight.shape[0], *size).to(self.input)


def pair(number: int | tuple[int, int]) -> tuple[int, int]:
    return (number, number) if isinstance(number, int) else number


def make(
    *,
    batch: int = 2,
    channels: tuple[int, int] = (8, 6),
    size: tuple[int, int] = (7, 9),
    kernel: int | tuple[int, int] = 3,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 1,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    deform_groups: int = 1,
    reach: int = 2,
    mask: bool = True,
    bias: bool = True,
    channels_last: bool = False,
    dtype: torch.dtype = torch.float32,
    other_dtype: torch.dtype | None = None,
    device: str = "cpu",
    requires_grad: bool = False,
) -> Case:
    """Samples reach `reach` pixels beyond the image, and keep away from where slopes jump.

    `other_dtype` is that of offset and mask; the others have `dtype`.
    """
    geometry = Geometry(pair(stride), pair(padding), pair(dilation), groups, deform_groups)
    other = other_dtype or dtype
    image = torch.randn(batch, channels[0], *size)
    if channels_last:
        image = image.contiguous(memory_format=torch.channels_last)
    weight = torch.randn(channels[1], channels[0] // groups, *pair(kernel))
    offset = _offset(image, weight, geometry, reach, other.itemsize < 4)
    samples = (batch, offset.shape[1] // 2, *offset.shape[2:])
    tensors = (
        image.to(device, dtype),
        offset.to(device, other),
        torch.rand(samples).to(device, other) if mask else None,
        weight.to(device, dtype),
        torch.randn(channels[1]).to(device, dtype) if bias else None,
    )
    for tensor in tensors:
        if tensor is not None:
            tensor.requires_grad_(requires_grad)
    return Case(*tensors, geometry)


def _offset(image: Tensor, weight: Tensor, geometry: Geometry, reach: int, coarse: bool) -> Tensor:
    """From the grid to random pixels; `coarse` ones are quarters, which 16 bits hold."""
    out_size = geometry.out_size(image, weight)
    y, x = grid(weight, geometry, out_size)
    shape = (image.shape[0], geometry.deform_groups, *y.shape)
    axes = []
    for base, length in zip((y, x), image.shape[2:], strict=True):
        pixel = (torch.rand(shape) * (length + 2 * reach)).floor() - reach
        part = torch.randint(1, 4, shape) / 4 if coarse else 0.05 + 0.9 * torch.rand(shape)
        axes.append(pixel + part - base)
    return torch.stack(axes, 3).flatten(1, 3)


def grid(weight: Tensor, geometry: Geometry, out_size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """y and x of every tap without offsets, (taps, Hout, Wout)."""
    taps = torch.arange(weight.shape[2] * weight.shape[3]).view(-1, 1, 1)
    lines, columns = torch.arange(out_size[0]).view(-1, 1), torch.arange(out_size[1])
    y = lines * geometry.stride[0] - geometry.padding[0]
    x = columns * geometry.stride[1] - geometry.padding[1]
    y = y + taps // weight.shape[3] * geometry.dilation[0]
    x = x + taps % weight.shape[3] * geometry.dilation[1]
    return torch.broadcast_tensors(y, x)


def reference(
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
) -> Tensor:
    """The definition, corner by corner and with all columns at once."""
    batch, channels, height, width = input.shape
    groups, deform_groups = geometry.groups, geometry.deform_groups
    out_size = geometry.out_size(input, weight)
    y, x = (axis.to(input.device) for axis in grid(weight, geometry, out_size))
    shifts = offset.view(batch, deform_groups, -1, 2, *out_size)
    y, x = y + shifts[:, :, :, 0], x + shifts[:, :, :, 1]
    touches = (y > -1) & (y < height) & (x > -1) & (x < width)
    y, x = y.where(touches, 0), x.where(touches, 0)
    pixels = input.reshape(batch, deform_groups, channels // deform_groups, -1)
    columns: Tensor | int = 0
    for line in (y.detach().floor(), y.detach().floor() + 1):
        for column in (x.detach().floor(), x.detach().floor() + 1):
            inside = (line >= 0) & (line < height) & (column >= 0) & (column < width) & touches
            key = (line * width + column).where(inside, 0).long().flatten(2).unsqueeze(2)
            pixel = pixels.gather(3, key.expand(-1, -1, pixels.shape[2], -1))
            pixel = pixel.unflatten(3, y.shape[2:]).where(inside.unsqueeze(2), 0)
            factor = (1 - (y - line).abs()) * (1 - (x - column).abs())
            columns = columns + pixel * factor.where(inside, 0).unsqueeze(2)
    if mask is not None:
        share = mask.view(batch, deform_groups, 1, -1, *out_size)
        columns = columns * share.where(touches.unsqueeze(2), 0)
    columns = columns.reshape(batch, groups, channels // groups * weight[0, 0].numel(), -1)
    weights = weight.reshape(groups, weight.shape[0] // groups, -1)
    out = torch.einsum("goc,ngcp->ngop", weights, columns).reshape(batch, -1, *out_size)
    return out if bias is None else out + bias.view(-1, 1, 1)


def expected(case: Case, grad_out: Tensor) -> list[Tensor]:
    """Output and gradients in float64, of the inputs as they were rounded."""
    wide = [None if t is None else t.detach().double().requires_grad_() for t in case.tensors]
    out = reference(*wide, case.geometry)
    wanted = [tensor for tensor in wide if tensor is not None]
    return [out.detach(), *torch.autograd.grad(out, wanted, grad_out.double())]


def close(actual: Tensor, wanted: Tensor, sums: torch.dtype = torch.float32) -> None:
    """Equal but for the rounding of the result to its dtype, and of the sums to theirs."""
    rounding = 1e-12 if sums == torch.float64 else 3e-6
    info = torch.finfo(actual.dtype)
    largest = wanted.abs().max().item() if wanted.numel() else 0.0
    atol = rounding * max(1.0, largest) + info.smallest_normal * info.eps
    torch.testing.assert_close(actual.double(), wanted, rtol=info.eps, atol=atol)
