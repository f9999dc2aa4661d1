"""`modulated_deform_conv2d` in PyTorch's own operators, for devices that have no fused kernel."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from . import _deform_conv_columns as product
from ._deform_conv_geometry import Geometry, Gradients, Pair


def forward(
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
) -> Tensor:
    """See `modulated_deform_conv2d`."""
    return product.forward(_Samples, input, offset, mask, weight, bias, geometry)


def backward(
    grad_out: Tensor,
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    geometry: Geometry,
) -> Gradients:
    """See `modulated_deform_conv2d_backward`. As deterministic as `Tensor.index_add_` is."""
    return product.backward(_Samples, grad_out, input, offset, mask, weight, geometry)


class _Corners(NamedTuple):
    """Each sample's corners in the order (y0, x0), (y0, x1), (y1, x0), (y1, x1)."""

    rows: Tensor  # (pixels, taps, deform groups, 4) rows of the table; its last row means outside
    y: Tensor  # bilinear factors along y, of the same shape
    x: Tensor  # along x
    mask: Tensor  # (pixels, taps, deform groups, 1), zero for a sample that is all outside


class _Samples:
    """See `_deform_conv_columns.Samples`."""

    def __init__(
        self,
        image: Tensor,
        offset: Tensor,
        mask: Tensor | None,
        kernel: Pair,
        out_width: int,
        geometry: Geometry,
    ) -> None:
        self._size = image.shape[:2]
        self._offset = offset
        self._mask = mask
        self._kernel = kernel
        self._out_width = out_width
        self._geometry = geometry
        # A row per pixel and deform group, and a row of zeros that every corner outside reads:
        # zero times an infinite border pixel would not be zero.
        rows = image.reshape(-1, image.shape[2] // geometry.deform_groups)
        self._table = torch.cat((rows, rows.new_zeros(1, rows.shape[1])))

    def columns(self, first: int, out: Tensor) -> None:
        corners = self._corners(first, out.shape[1])
        self._store(self._table[corners.rows], corners, out)

    def backward(self, first: int, inout: Tensor, grad_image: Tensor) -> Tensor:
        corners = self._corners(first, inout.shape[1])
        pixels = self._table[corners.rows]  # (pixels, taps, deform groups, 4, channels)
        # (groups, pixels, taps, channels) as (pixels, taps, deform groups, channels)
        grad = inout.permute(1, 2, 0, 3).reshape(*corners.rows.shape[:3], 1, -1)
        dots = (pixels * grad).sum(-1).masked_fill_(corners.rows == len(self._table) - 1, 0)
        scale = corners.y * corners.x * corners.mask
        grad_table = torch.zeros_like(self._table)
        grad_table.index_add_(0, corners.rows.flatten(), (scale[..., None] * grad).flatten(0, 3))
        grad_image.add_(grad_table[:-1].view_as(grad_image))
        self._store(pixels, corners, inout)
        # A corner's factor along y is y1 - y or y - y0: it changes by -1 or +1 a pixel.
        minus_plus_y, minus_plus_x = dots.new_tensor([[-1, -1, 1, 1], [-1, 1, -1, 1]])
        grad_y = (dots * corners.x * minus_plus_y * corners.mask).sum(-1)
        grad_x = (dots * corners.y * minus_plus_x * corners.mask).sum(-1)
        grad_mask = (dots * corners.y * corners.x).sum(-1)
        return torch.stack((grad_y, grad_x, grad_mask)).permute(3, 2, 0, 1)

    @staticmethod
    def multiply(a: Tensor, b: Tensor, out: Tensor, add: bool) -> None:
        if add:
            out.addmm_(a, b)
        else:
            torch.mm(a, b, out=out)

    def _store(self, corner_pixels: Tensor, corners: _Corners, out: Tensor) -> None:
        scale = corners.y * corners.x * corners.mask
        columns = (corner_pixels * scale[..., None]).sum(3).flatten(2)  # (pixels, taps, C)
        groups, pixels, taps, channels = out.shape
        out.copy_(columns.view(pixels, taps, groups, channels).permute(2, 0, 1, 3))

    def _corners(self, first: int, pixels: int) -> _Corners:
        height, width = self._size
        y, x = self._positions(first, pixels)
        touches = (y > -1) & (y < height) & (x > -1) & (x < width)  # False for NaN
        y, x = y.where(touches, 0), x.where(touches, 0)
        if self._mask is None:
            mask = touches.to(y.dtype)
        else:
            part = self._mask[..., first : first + pixels].permute(2, 1, 0)
            mask = part.where(touches, 0)
        y0, x0 = y.floor(), x.floor()
        fy, fx = y - y0, x - x0
        line = torch.stack((y0, y0, y0 + 1, y0 + 1), -1).to(torch.int64)
        column = torch.stack((x0, x0 + 1, x0, x0 + 1), -1).to(torch.int64)
        inside = touches[..., None] & (line >= 0) & (line < height)
        inside &= (column >= 0) & (column < width)
        groups = y.shape[2]
        group = torch.arange(groups, device=y.device)[:, None]
        rows = ((line * width + column) * groups + group).where(inside, len(self._table) - 1)
        return _Corners(
            rows,
            torch.stack((1 - fy, 1 - fy, fy, fy), -1),
            torch.stack((1 - fx, fx, 1 - fx, fx), -1),
            mask[..., None],
        )

    def _positions(self, first: int, pixels: int) -> tuple[Tensor, Tensor]:
        """y and x in pixels of the image, (pixels, taps, deform groups)."""
        offset_y, offset_x = self._offset[..., first : first + pixels].permute(2, 3, 1, 0)
        at = torch.arange(first, first + pixels, device=offset_y.device)[:, None, None]
        taps = torch.arange(offset_y.shape[1], device=offset_y.device)[:, None]
        (stride_y, stride_x), (pad_y, pad_x), (dilation_y, dilation_x) = self._geometry[:3]
        y = at // self._out_width * stride_y - pad_y + taps // self._kernel[1] * dilation_y
        x = at % self._out_width * stride_x - pad_x + taps % self._kernel[1] * dilation_x
        return y + offset_y, x + offset_x
