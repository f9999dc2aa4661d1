"""The compiled module `bev_pool_ext` of BEVFusion, BEVDet, MapTR and OccFormer (version 1).

Argument names and order are theirs. All is outside of autograd.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.bev_pool import bev_pool
from ..ops.bev_pool import bev_pool_backward as _backward

__all__ = ["bev_pool_backward", "bev_pool_forward"]


def bev_pool_forward(
    x: Tensor,
    geom_feats: Tensor,
    interval_lengths: Tensor,
    interval_starts: Tensor,
    b: int,
    d: int,
    h: int,
    w: int,
) -> Tensor:
    """Sum the rows of `x`, (n, c), over intervals: (b, d, h, w, c). See `bev_pool`."""
    with torch.no_grad():
        return bev_pool(x, geom_feats, interval_lengths, interval_starts, b, d, h, w)


def bev_pool_backward(
    out_grad: Tensor,
    geom_feats: Tensor,
    interval_lengths: Tensor,
    interval_starts: Tensor,
    b: int,
    d: int,
    h: int,
    w: int,
) -> Tensor:
    """The gradient of `x`, (n, c), from that of the result, (b, d, h, w, c)."""
    if tuple(out_grad.shape[:-1]) != (b, d, h, w):
        raise ValueError(
            f"out_grad must be {(b, d, h, w)} by channels, not {tuple(out_grad.shape)}"
        )
    with torch.no_grad():
        x = out_grad.new_empty(geom_feats.shape[0], out_grad.shape[-1])
        return _backward(out_grad, x, geom_feats, interval_lengths, interval_starts)
