"""The definition of `bev_pool`, for float64 and for exporters; autograd differentiates it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from . import Inputs


def forward(inputs: Inputs) -> Tensor:
    """(batch, depth, height, width, C), computed in the dtype of the inputs."""
    cell, used = cells_of_rows(inputs)
    x = inputs.x.where(used[:, None], 0)
    out = x.new_zeros(math.prod(inputs.grid), x.shape[1]).index_add(0, cell, x)
    return out.view(*inputs.grid, x.shape[1])


def cells_of_rows(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """(N,) each row's cell, that of its interval's first row, and whether it has an interval."""
    starts = inputs.interval_starts.to(torch.int64)
    row = torch.arange(inputs.x.shape[0], device=starts.device)
    interval = torch.zeros_like(row).scatter(0, starts, 1).cumsum(0) - 1
    first = starts[interval.clamp(min=0)]
    length = inputs.interval_lengths.to(torch.int64)[interval.clamp(min=0)]
    cell = inputs.cells()[first]
    used = (interval >= 0) & (row < first + length)
    limits = (inputs.height, inputs.width, inputs.depth, inputs.batch)
    for place, limit in zip(inputs.geometry[first].unbind(1), limits, strict=True):
        used = used & (place >= 0) & (place < limit)
    return cell.where(used, 0), used
