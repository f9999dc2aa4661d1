"""Random inputs of every operator.

Samples reach beyond the maps, and keep away from where slopes jump and rounding decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from turbo_physai.kernels import ops
from turbo_physai.kernels.ops.modulated_deform_conv2d.reference import grid

from turbo_physai import kernels

Levels = tuple[tuple[int, int], ...]
TWO: Levels = ((6, 9), (3, 5))
FOUR: Levels = ((6, 9), (3, 5), (2, 2), (1, 3))


class Operator(NamedTuple):
    """An operator, for the tests that all of them pass."""

    name: str
    make: Callable[..., Any]
    """Inputs; takes `dtype`, `other_dtype`, `requires_grad` and `device`, and the operator's."""
    empty: dict[str, dict[str, Any]]
    """Arguments of `make` that leave nothing to compute."""

    @property
    def function(self) -> Callable[..., Any]:
        """As it is exported; takes the fields of the inputs."""
        function = getattr(kernels, self.name)
        if self.name != "spatial_cross_attention":
            return function
        return lambda *inputs: function(*inputs[:7], first_item_visibility=inputs[7])

    @property
    def overload(self) -> Any:
        return getattr(torch.ops.turbo_physai, self.name).default


def _levels(levels: Levels) -> tuple[Tensor, Tensor, int]:
    shapes = torch.tensor(levels)
    areas = shapes.prod(1)
    return shapes, areas.cumsum(0) - areas, int(areas.sum())


def make_ms_deform_attn(
    *,
    batch: int = 2,
    queries: int = 11,
    heads: int = 3,
    dim: int = 8,
    levels: Levels = TWO,
    points: int = 4,
    reach: float = 0.2,
    dtype: torch.dtype = torch.float32,
    other_dtype: torch.dtype | None = None,
    device: str = "cpu",
    requires_grad: bool = False,
) -> Any:
    """Locations up to `reach` of a level beyond it (negative: inside)."""
    shapes, starts, keys = _levels(levels)
    bags = (batch, queries, heads, len(levels), points)
    sizes = shapes.flip(1)[:, None].double()
    places = torch.rand(*bags, 2, dtype=torch.float64) * (1 + 2 * reach) - reach
    pixels = (places * sizes - 0.5).floor() + 0.05 + 0.9 * torch.rand(*bags, 2)
    inputs = ops.ms_deform_attn.Inputs(
        torch.randn(batch, keys, heads, dim).to(device, dtype),
        shapes.to(device),
        starts.to(device),
        ((pixels + 0.5) / sizes).to(device, other_dtype or dtype),
        torch.rand(bags).flatten(3).softmax(-1).view(bags).to(device, dtype),
    )
    return _differentiable(inputs, requires_grad)


def make_spatial(
    *,
    batch: int = 2,
    queries: int = 11,
    heads: int = 3,
    dim: int = 8,
    cameras: int = 3,
    levels: Levels = TWO,
    points: int = 4,
    heights: int = 2,
    seen: float = 1 / 3,
    reach: float = 0.1,
    first_item_visibility: bool = False,
    dtype: torch.dtype = torch.float32,
    other_dtype: torch.dtype | None = None,
    device: str = "cpu",
    requires_grad: bool = False,
) -> Any:
    """A point is visible with probability `seen`; `other_dtype` is that of offsets and reference
    points, which lie up to `reach` outside of the images (negative: inside)."""
    shapes, starts, keys = _levels(levels)
    place = other_dtype or dtype
    references = torch.rand(cameras, batch, queries, heights, 2) * (1 + 2 * reach) - reach
    references = references.to(place)
    bags = (batch, queries, heads, len(levels), points)
    around = references.new_zeros(cameras, batch, queries, points, 2)
    if heights:
        around = references[:, :, :, torch.arange(points) % heights]
    inputs = ops.spatial_cross_attention.Inputs(
        torch.randn(batch, cameras, keys, heads, dim).to(device, dtype),
        shapes.to(device),
        starts.to(device),
        _offsets(bags, around[:, :, :, None, None], shapes, place).to(device),
        torch.randn(bags).flatten(3).to(device, dtype),
        references.to(device),
        (torch.rand(cameras, batch, queries, heights) < seen).to(device),
        first_item_visibility,
    )
    return _differentiable(inputs, requires_grad)


def make_temporal(
    *,
    batch: int = 2,
    queries: int = 11,
    heads: int = 3,
    dim: int = 8,
    entries: int = 2,
    levels: Levels = TWO,
    points: int = 4,
    reach: float = 0.1,
    dtype: torch.dtype = torch.float32,
    other_dtype: torch.dtype | None = None,
    device: str = "cpu",
    requires_grad: bool = False,
) -> Any:
    """Reference points of their own for each entry of the queue and each level."""
    shapes, starts, keys = _levels(levels)
    place = other_dtype or dtype
    references = torch.rand(batch * entries, queries, len(levels), 2) * (1 + 2 * reach) - reach
    references = references.to(place)
    bags = (batch, queries, heads, entries, len(levels), points)
    around = references.view(batch, entries, queries, len(levels), 2).transpose(1, 2)
    inputs = ops.temporal_self_attention.Inputs(
        torch.randn(batch * entries, keys, heads, dim).to(device, dtype),
        shapes.to(device),
        starts.to(device),
        _offsets(bags, around[None, :, :, None, :, :, None], shapes, place).to(device),
        torch.randn(bags).flatten(4).to(device, dtype),
        references.to(device),
    )
    return _differentiable(inputs, requires_grad)


def _offsets(
    bags: tuple[int, ...], references: Tensor, shapes: Tensor, dtype: torch.dtype
) -> Tensor:
    """Pixels, drawn again until all that use them lie off the lines between two pixels.

    `references` has one more dimension in front, over what shares an offset.
    """
    sizes = shapes.flip(1)[:, None].double()
    offsets = (torch.randn(*bags, 2) * 2).to(dtype)
    for _ in range(400):
        pixels = references.double() * sizes - 0.5 + offsets.double()
        near = ((pixels - pixels.round()).abs() < (0.02 if pixels.shape[0] < 9 else 2e-3)).any(0)
        if not near.any():
            return offsets
        offsets = torch.where(near, (torch.randn(*bags, 2) * 2).to(dtype), offsets)
    raise AssertionError("no offsets found")


def _differentiable(inputs: Any, requires_grad: bool) -> Any:
    for index in (0, 3, 4):
        inputs[index].requires_grad_(requires_grad)
    return inputs


def pair(number: int | tuple[int, int]) -> list[int]:
    return [number, number] if isinstance(number, int) else list(number)


def make_deform_conv(
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
) -> Any:
    """Samples reach `reach` pixels beyond the image.

    `other_dtype` is that of offset and mask; the others have `dtype`.
    """
    numbers = [pair(stride), pair(padding), pair(dilation), groups, deform_groups]
    other = other_dtype or dtype
    image = torch.randn(batch, channels[0], *size)
    weight = torch.randn(channels[1], channels[0] // groups, *pair(kernel))
    empty = ops.modulated_deform_conv2d.Inputs(image, image, None, weight, None, *numbers)
    offset = _deform_offset(empty, reach, other.itemsize < 4)
    samples = (batch, offset.shape[1] // 2, *offset.shape[2:])
    if channels_last:
        image = image.contiguous(memory_format=torch.channels_last)
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
    return ops.modulated_deform_conv2d.Inputs(*tensors, *numbers)


def _deform_offset(inputs: Any, reach: int, coarse: bool) -> Tensor:
    """From the grid to random pixels; `coarse` ones are quarters, which 16 bits hold."""
    y, x = grid(inputs.geometry)
    shape = (inputs.input.shape[0], inputs.deform_groups, *y.shape)
    axes = []
    for base, length in zip((y, x), inputs.input.shape[2:], strict=True):
        pixel = (torch.rand(shape) * (length + 2 * reach)).floor() - reach
        part = torch.randint(1, 4, shape) / 4 if coarse else 0.05 + 0.9 * torch.rand(shape)
        axes.append(pixel + part - base)
    return torch.stack(axes, 3).flatten(1, 3)


PC_RANGE = [-51.2, -51.2, -5.0, 51.2, 51.2, 3.0]
SIZE = [90, 160]


def make_points(
    *,
    batch: int = 2,
    cameras: int = 6,
    heights: int = 4,
    queries: int = 101,
    dtype: torch.dtype = torch.float32,
    other_dtype: torch.dtype | None = None,
    device: str = "cpu",
    requires_grad: bool = False,
) -> Any:
    """Cameras that look around from the middle, a tenth of the range apart, each a bit turned.
    `other_dtype` is that of their matrices."""
    points = torch.rand(batch, heights, queries, 3, dtype=torch.float64) * 1.2 - 0.1
    angle = torch.arange(cameras) * (2 * torch.pi / max(cameras, 1)) + torch.rand(batch, 1)
    zero = torch.zeros_like(angle)
    right = torch.stack([angle.sin(), -angle.cos(), zero, torch.randn_like(angle)], -1)
    down = torch.stack([zero, zero, zero - 1, torch.randn_like(angle)], -1)
    ahead = torch.stack([angle.cos(), angle.sin(), zero, torch.randn_like(angle)], -1)
    height, width = SIZE
    rows = [width * (0.8 * right + ahead / 2), width * 0.8 * down + height * ahead / 2, ahead]
    matrices = torch.stack([*rows, torch.tensor([0, 0, 0, 1.0]).expand_as(ahead)], -2)
    return ops.point_sampling.Inputs(
        points.to(device, dtype), matrices.to(device, other_dtype or dtype), PC_RANGE, SIZE
    )


def make_bev_pool(
    *,
    batch: int = 2,
    points: int = 200,
    channels: int = 12,
    depth: int = 2,
    height: int = 5,
    width: int = 7,
    dtype: torch.dtype = torch.float32,
    other_dtype: torch.dtype | None = None,
    device: str = "cpu",
    requires_grad: bool = False,
) -> Any:
    """Points sorted by cell; every fifth interval is left out, its rows stay."""
    grid = (batch, depth, height, width)
    cell = torch.randint(0, max(1, math.prod(grid)), (points,)).sort().values
    _, lengths = cell.unique_consecutive(return_counts=True)
    starts = lengths.cumsum(0) - lengths
    kept = torch.arange(len(lengths)) % 5 != 2
    w, h = cell % max(width, 1), cell // max(width, 1) % max(height, 1)
    plane = max(1, height * width)
    z, b = cell // plane % max(depth, 1), cell // (plane * max(depth, 1))
    return ops.bev_pool.Inputs(
        torch.randn(points, channels).to(device, dtype).requires_grad_(requires_grad),
        torch.stack((h, w, z, b), 1).int().to(device),
        lengths[kept].int().to(device),
        starts[kept].int().to(device),
        *grid,
    )


_NO_LEVEL: dict[str, dict[str, Any]] = {
    "queries": {"queries": 0},
    "batch": {"batch": 0},
    "heads": {"heads": 0},
    "points": {"points": 0},
    "level": {"levels": ((0, 5),)},
}
MS_DEFORM_ATTN = Operator("ms_deform_attn", make_ms_deform_attn, _NO_LEVEL)
SPATIAL = Operator(
    "spatial_cross_attention",
    make_spatial,
    {**_NO_LEVEL, "cameras": {"cameras": 0}, "heights": {"heights": 0}},
)
TEMPORAL = Operator(
    "temporal_self_attention", make_temporal, {**_NO_LEVEL, "entries": {"entries": 0}}
)
DEFORM_CONV = Operator(
    "modulated_deform_conv2d",
    make_deform_conv,
    {"batch": {"batch": 0, "bias": False}, "size": {"size": (0, 4), "padding": 2, "bias": False}},
)
POINT_SAMPLING = Operator(
    "point_sampling",
    make_points,
    {name: {name: 0} for name in ("queries", "batch", "cameras", "heights")},
)
BEV_POOL = Operator(
    "bev_pool",
    make_bev_pool,
    {"points": {"points": 0}, "channels": {"channels": 0}, "batch": {"points": 0, "batch": 0}},
)
ATTENTION = [MS_DEFORM_ATTN, SPATIAL, TEMPORAL]
DIFFERENTIABLE = [*ATTENTION, DEFORM_CONV, BEV_POOL]
ALL = [*DIFFERENTIABLE, POINT_SAMPLING]
