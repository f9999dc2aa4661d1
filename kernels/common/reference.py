"""Bilinear sampling by its definition, corner by corner, for the operators' references."""

from __future__ import annotations

import torch
from torch import Tensor


def corner(
    x: Tensor, y: Tensor, width: int | Tensor, height: int | Tensor, right: int, below: int
) -> tuple[Tensor, Tensor, Tensor]:
    """One corner of samples at pixels (x, y): its column or row beyond the first by 0 or 1.

    Returns:
        The pixel y * width + x (0 outside), whether it is inside, and the bilinear factor.
    """
    column, line = x.detach().floor() + right, y.detach().floor() + below
    inside = (column >= 0) & (column < width) & (line >= 0) & (line < height)
    factor = (1 - (x - column).abs()) * (1 - (y - line).abs())
    return (line * width + column).where(inside, 0).to(torch.int64), inside, factor


def samples(
    value: Tensor, shapes: Tensor, starts: Tensor, pixels: Tensor, weights: Tensor
) -> Tensor:
    """Bilinear samples of levels, times weights, summed over levels and points.

    Args:
        value: (B, S, H, D), the levels one after the other in S.
        shapes: (L, 2) as (height, width); starts: (L,), each level's first row in S.
        pixels: (B, Q, H, L, P, 2) as (x, y), 0 at the first pixel's centre.
        weights: (B, Q, H, L, P).

    Returns:
        (B, Q, H, D).
    """
    batch, _, heads, _ = value.shape
    height, width = shapes[:, None].unbind(-1)
    item = torch.arange(batch, device=value.device)[:, None, None, None, None]
    head = torch.arange(heads, device=value.device)[:, None, None]
    x, y = pixels.unbind(-1)
    touches = (x >= -1) & (x < width) & (y >= -1) & (y < height)  # False for NaN
    x, y = x.where(touches, 0), y.where(touches, 0)
    out = value.new_zeros(())
    for below in (0, 1):
        for right in (0, 1):
            pixel, inside, factor = corner(x, y, width, height, right, below)
            inside = inside & touches
            share = (weights * factor).where(inside, 0)
            rows = value[item, starts[:, None] + pixel, head]
            rows = rows.where(inside[..., None], 0)
            out = out + (share[..., None] * rows).sum((3, 4))
    return out
