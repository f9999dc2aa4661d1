"""`grid_mask` against the usual formulation, a mask painted by NumPy and copied to the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from ...bench.harness import Case, Step, is_h200
from . import draw_grid, grid_mask

Operator = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Shape:
    """Images as BEVFormer has them: six cameras, one frame."""

    height: int
    width: int
    images: int = 6


SHAPES: Mapping[str, Shape] = {
    "tiny": Shape(480, 800),
    "small": Shape(736, 1280),
    "base": Shape(928, 1600),
}


def numpy_reference(x: Tensor) -> Tensor:
    """The usual formulation with BEVFormer's settings: squares, not turned, all else blank.

    The usual one also passes the canvas through Pillow, which copies it for an angle of zero.
    """
    import numpy as np  # no dependency of the package

    height, width = x.shape[2:]
    grid = draw_grid(height)
    canvas = np.ones((int(1.5 * height), int(1.5 * width)), np.float32)
    for i in range(canvas.shape[0] // grid.period):
        start = grid.period * i + grid.first_row
        canvas[start : start + grid.stripe] *= 0
    for i in range(canvas.shape[1] // grid.period):
        start = grid.period * i + grid.first_column
        canvas[:, start : start + grid.stripe] *= 0
    turned = np.uint8(canvas).copy()
    top, left = (canvas.shape[0] - height) // 2, (canvas.shape[1] - width) // 2
    cropped = turned[top : top + height, left : left + width]
    mask = 1 - torch.from_numpy(cropped).to(x.dtype).to(x.device)
    images = x.view(-1, height, width)
    return (images * mask.expand_as(images)).view_as(x)


def turbo_physai(x: Tensor) -> Tensor:
    """The operator with BEVFormer's settings."""
    return grid_mask(x, use_h=True, use_w=True, mode=1)


def cases(names: list[str], dtype: torch.dtype, device: torch.device) -> Iterator[Case]:
    """A forward case for each of the named shapes; images need no gradient."""
    for name in names:
        shape = SHAPES[name]
        x = torch.randn(shape.images, 3, shape.height, shape.width, dtype=dtype, device=device)
        operators: dict[str, Operator] = {"numpy": numpy_reference, "turbo_physai": turbo_physai}
        steps = {key: _step(operator, x) for key, operator in operators.items()}
        yield Case(name, "forward", steps, _floor_us(x, device))


def _step(operator: Operator, x: Tensor) -> Step:
    """Every call another grid, and the same ones for every operator."""
    import numpy as np

    seeds = count()

    def step() -> None:
        np.random.seed(next(seeds))
        operator(x)

    return step


def _floor_us(x: Tensor, device: torch.device) -> float | None:
    """What memory allows at best on an H200 (4.3 TB/s): every pixel read once and written once."""
    if not is_h200(device):
        return None
    return 2 * x.numel() * x.element_size() / 4.3e12 * 1e6
