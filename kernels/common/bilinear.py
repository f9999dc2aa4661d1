"""Bilinear sampling in PyTorch's operators: the corners of samples, zeros outside."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Corners(NamedTuple):
    """Each sample's corners, (..., 4), in the order (y0, x0), (y0, x1), (y1, x0), (y1, x1)."""

    pixel: Tensor
    """y * width + x, int64; any number for a corner outside."""
    inside: Tensor
    x: Tensor
    """Factors along x."""
    y: Tensor

    def weighted(self, weight: Tensor) -> Tensor:
        """Factors times each sample's weight, (...), zero outside whatever the weight is."""
        return (self.x * self.y * weight.unsqueeze(-1)).where(self.inside, 0)

    def slopes(self, dots: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients along x and y, (...), from those of the factors' products.

        A corner's factor along x is x1 - x or x - x0: it changes by -1 or +1 a pixel.
        """
        minus_plus_x, minus_plus_y = dots.new_tensor([[-1, 1, -1, 1], [-1, -1, 1, 1]])
        return (dots * self.y * minus_plus_x).sum(-1), (dots * self.x * minus_plus_y).sum(-1)


def corners(
    x: Tensor, y: Tensor, touches: Tensor, width: int | Tensor, height: int | Tensor
) -> Corners:
    """The corners of samples at pixels (x, y), 0 at the first pixel's centre.

    Args:
        touches: which samples count; those that do not have no corner inside.
        width, height: of the image; tensors broadcast with x and y.
    """
    x, y = x.where(touches, 0), y.where(touches, 0)
    x0, y0 = x.floor(), y.floor()
    fx, fy = x - x0, y - y0
    column = torch.stack((x0, x0 + 1, x0, x0 + 1), -1).to(torch.int64)
    line = torch.stack((y0, y0, y0 + 1, y0 + 1), -1).to(torch.int64)
    if isinstance(width, Tensor) and isinstance(height, Tensor):
        width, height = width.unsqueeze(-1), height.unsqueeze(-1)
    inside = touches.unsqueeze(-1) & (column >= 0) & (column < width)
    inside &= (line >= 0) & (line < height)
    return Corners(
        line * width + column,
        inside,
        torch.stack((1 - fx, fx, 1 - fx, fx), -1),
        torch.stack((1 - fy, 1 - fy, fy, fy), -1),
    )
