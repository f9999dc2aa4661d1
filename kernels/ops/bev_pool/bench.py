"""`bev_pool` against the published formulation by cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ...bench.harness import Case, floors_us, passes
from . import bev_pool


@dataclass(frozen=True)
class Shape:
    """Points of all cameras that lie in the grid, and the grid."""

    points: int
    grid: tuple[int, int, int, int]
    channels: int = 80


SHAPES: Mapping[str, Shape] = {
    "tiny": Shape(50_000, (1, 1, 90, 90)),
    "bevfusion": Shape(1_500_000, (1, 1, 360, 360)),
}
Operator = Callable[..., Tensor]


def make_inputs(shape: Shape, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Points that crowd near the middle, as the rays of cameras do, sorted by cell."""
    generator = torch.Generator().manual_seed(0)
    batch, depth, height, width = shape.grid
    spread = torch.randn(shape.points, 2, generator=generator) / 5 + 0.5
    place = (spread.clamp(0, 0.999) * torch.tensor([height, width])).long()
    level = torch.randint(depth, (shape.points, 1), generator=generator)
    item = torch.randint(batch, (shape.points, 1), generator=generator)
    geometry = torch.cat((place, level, item), 1)
    h, w, z, b = geometry.unbind(1)
    ranks, order = (((b * depth + z) * height + h) * width + w).sort()
    _, lengths = torch.unique(ranks, return_counts=True)
    x = torch.randn(shape.points, shape.channels, generator=generator)
    starts = lengths.cumsum(0) - lengths
    indices = [t.int().to(device) for t in (geometry[order], lengths, starts)]
    return [x.to(device, dtype).requires_grad_(), *indices]


def cumulative_sums(
    x: Tensor, geometry: Tensor, lengths: Tensor, starts: Tensor, *grid: int
) -> Tensor:
    """Lift, Splat, Shoot's: sums up to each cell's last row, and their differences."""
    ends = (starts + lengths - 1).long()
    sums = x.cumsum(0)[ends]
    sums = torch.cat((sums[:1], sums[1:] - sums[:-1]))
    h, w, z, b = geometry[ends].long().unbind(1)
    out = x.new_zeros(*grid, x.shape[1])
    return out.index_put((b, z, h, w), sums)


def cases(names: list[str], dtype: torch.dtype, device: torch.device) -> Iterator[Case]:
    """A forward and a forward+backward case for each of the named shapes."""
    for name in names:
        shape = SHAPES[name]
        inputs = make_inputs(shape, dtype, device)
        x = inputs[0]
        floors = floors_us(device, (x,), x.new_empty(math.prod(shape.grid), shape.channels), 0)
        operators: dict[str, Operator] = {
            name: partial(_on_grid, function, shape.grid)
            for name, function in (("cumsum", cumulative_sums), ("turbo_physai", bev_pool))
        }
        yield from passes(name, operators, inputs, (x,), floors)


def _on_grid(function: Operator, grid: tuple[int, ...], *tensors: Tensor) -> Tensor:
    return function(*tensors, *grid)
