"""`modulated_deform_conv2d` in PyTorch's own operators, for devices that have no fused kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...common import bilinear
from . import Inputs, _columns
from ._geometry import Geometry


def forward(inputs: Inputs) -> Tensor:
    """See `modulated_deform_conv2d`."""
    return _columns.forward(_Samples, inputs)


def backward(
    grad_out: Tensor, inputs: Inputs, wanted: Sequence[bool] = (True, True, True, True)
) -> _columns.Gradients:
    """The gradients of input, offset, mask and weight, None where not wanted. As deterministic as
    `Tensor.index_add_` is."""
    return _columns.backward(_Samples, grad_out, inputs, wanted)


class _Samples:
    """See `_columns.Samples`."""

    def __init__(
        self, image: Tensor, offset: Tensor, mask: Tensor | None, geometry: Geometry
    ) -> None:
        self._offset = offset
        self._mask = mask
        self._geometry = geometry
        # A row per pixel and deform group, and a row of zeros that every corner outside reads:
        # zero times an infinite border pixel would not be zero.
        rows = image.reshape(-1, image.shape[2] // geometry.deform_groups)
        self._table = torch.cat((rows, rows.new_zeros(1, rows.shape[1])))

    def columns(self, first: int, out: Tensor) -> None:
        rows, corners, mask = self._located(first, out.shape[1])
        self._store(self._table[rows], corners.weighted(mask), out)

    def backward(self, first: int, inout: Tensor, grad_image: Tensor | None) -> Tensor:
        rows, corners, mask = self._located(first, inout.shape[1])
        pixels = self._table[rows]  # (pixels, taps, deform groups, 4, channels)
        # (groups, pixels, taps, channels) as (pixels, taps, deform groups, channels)
        grad = inout.permute(1, 2, 0, 3).reshape(*rows.shape[:3], 1, -1)
        dots = (pixels * grad).sum(-1).masked_fill_(rows == len(self._table) - 1, 0)
        scale = corners.weighted(mask)
        if grad_image is not None:
            grad_table = torch.zeros_like(self._table)
            grad_table.index_add_(0, rows.flatten(), (scale[..., None] * grad).flatten(0, 3))
            grad_image.add_(grad_table[:-1].view_as(grad_image))
        self._store(pixels, scale, inout)
        grad_x, grad_y = corners.slopes(dots)
        grad_mask = (dots * corners.y * corners.x).sum(-1)
        return torch.stack((grad_y * mask, grad_x * mask, grad_mask)).permute(3, 2, 0, 1)

    @staticmethod
    def multiply(a: Tensor, b: Tensor, out: Tensor, add: bool) -> None:
        if add:
            out.addmm_(a, b)
        else:
            torch.mm(a, b, out=out)

    def _store(self, corner_pixels: Tensor, scale: Tensor, out: Tensor) -> None:
        columns = (corner_pixels * scale[..., None]).sum(3).flatten(2)  # (pixels, taps, C)
        groups, pixels, taps, channels = out.shape
        out.copy_(columns.view(pixels, taps, groups, channels).permute(2, 0, 1, 3))

    def _located(self, first: int, pixels: int) -> tuple[Tensor, bilinear.Corners, Tensor]:
        """Rows of the table, (pixels, taps, deform groups, 4), the corners, and the masks, zero for
        a sample that is all outside."""
        height, width = self._geometry.in_size
        y, x = self._positions(first, pixels)
        touches = (y > -1) & (y < height) & (x > -1) & (x < width)  # False for NaN
        corners = bilinear.corners(x, y, touches, width, height)
        if self._mask is None:
            mask = touches.to(y.dtype)
        else:
            part = self._mask[..., first : first + pixels].permute(2, 1, 0)
            mask = part.where(touches, 0)
        groups = y.shape[2]
        group = torch.arange(groups, device=y.device)[:, None]
        rows = (corners.pixel * groups + group).where(corners.inside, len(self._table) - 1)
        return rows, corners, mask

    def _positions(self, first: int, pixels: int) -> tuple[Tensor, Tensor]:
        """y and x in pixels of the image, (pixels, taps, deform groups)."""
        offset_y, offset_x = self._offset[..., first : first + pixels].permute(2, 3, 1, 0)
        at = torch.arange(first, first + pixels, device=offset_y.device)[:, None, None]
        taps = torch.arange(offset_y.shape[1], device=offset_y.device)[:, None]
        geometry, out_width = self._geometry, self._geometry.out_size[1]
        (stride_y, stride_x), (pad_y, pad_x) = geometry.stride, geometry.padding
        dilation_y, dilation_x = geometry.dilation
        y = at // out_width * stride_y - pad_y + taps // geometry.kernel[1] * dilation_y
        x = at % out_width * stride_x - pad_x + taps % geometry.kernel[1] * dilation_x
        return y + offset_y, x + offset_x
