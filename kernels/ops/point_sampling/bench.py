"""`point_sampling` against the usual formulation, a product of copied points and matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...bench.harness import Case, Step, is_h200
from . import point_sampling

Operator = Callable[[Tensor, Tensor, Sequence[float], Sequence[int]], tuple[Tensor, Tensor]]
PC_RANGE = (-51.2, -51.2, -5.0, 51.2, 51.2, 3.0)


@dataclass(frozen=True)
class Shape:
    """Sizes as BEVFormer has them: six cameras, four points in a pillar."""

    queries: int
    image: tuple[int, int]
    batch: int = 1
    cameras: int = 6
    heights: int = 4


SHAPES: Mapping[str, Shape] = {
    "tiny": Shape(50 * 50, (480, 800)),
    "small": Shape(150 * 150, (736, 1280)),
    "base": Shape(200 * 200, (928, 1600)),
}


def make_inputs(shape: Shape, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random pillars and cameras; the matrices are float32 for every dtype, as a pixel needs."""
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(shape.batch, shape.heights, shape.queries, 3, generator=generator)
    matrices = torch.randn(shape.batch, shape.cameras, 4, 4, generator=generator)
    focal = shape.image[1] / 2
    matrices *= torch.tensor([focal, focal, 1, 1])[:, None]
    return points.to(device, dtype), matrices.to(device)


def matmul_reference(
    reference_points: Tensor,
    lidar2img: Tensor,
    pc_range: Sequence[float],
    image_size: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """The usual formulation: points and matrices copied for each other, then multiplied."""
    points = reference_points.float().clone()
    for axis in range(3):
        low, high = pc_range[axis], pc_range[axis + 3]
        points[..., axis : axis + 1] = points[..., axis : axis + 1] * (high - low) + low
    points = torch.cat([points, torch.ones_like(points[..., :1])], -1).permute(1, 0, 2, 3)
    heights, batch, queries, _ = points.shape
    cameras = lidar2img.shape[1]
    points = points.view(heights, batch, 1, queries, 4, 1).repeat(1, 1, cameras, 1, 1, 1)
    matrices = lidar2img.view(1, batch, cameras, 1, 4, 4).repeat(heights, 1, 1, queries, 1, 1)
    seen = torch.matmul(matrices, points).squeeze(-1)
    depth = seen[..., 2:3]
    visible = depth > 1e-5
    seen = seen[..., :2] / torch.maximum(depth, torch.ones_like(depth) * 1e-5)
    height, width = image_size
    seen[..., 0] /= width
    seen[..., 1] /= height
    x, y = seen[..., :1], seen[..., 1:]
    visible = torch.nan_to_num(visible & (y > 0.0) & (y < 1.0) & (x < 1.0) & (x > 0.0))
    return seen.permute(2, 1, 3, 0, 4), visible.permute(2, 1, 3, 0, 4).squeeze(-1)


def cases(names: list[str], dtype: torch.dtype, device: torch.device) -> Iterator[Case]:
    """A forward case for each of the named shapes; there is no gradient."""
    operators: dict[str, Operator] = {"matmul": matmul_reference, "turbo_physai": point_sampling}
    for name in names:
        shape = SHAPES[name]
        inputs = make_inputs(shape, dtype, device)
        steps = {key: _step(operator, inputs, shape.image) for key, operator in operators.items()}
        yield Case(name, "forward", steps, _floor_us(shape, inputs, device))


def _step(operator: Operator, inputs: tuple[Tensor, Tensor], image: tuple[int, int]) -> Step:
    def step() -> None:
        operator(*inputs, PC_RANGE, image)

    return step


def _floor_us(shape: Shape, inputs: tuple[Tensor, Tensor], device: torch.device) -> float | None:
    """What memory allows at best on an H200 (4.3 TB/s): inputs read, 9 bytes a point written."""
    if not is_h200(device):
        return None
    read = sum(tensor.numel() * tensor.element_size() for tensor in inputs)
    written = 9 * shape.batch * shape.cameras * shape.heights * shape.queries
    return (read + written) / 4.3e12 * 1e6
