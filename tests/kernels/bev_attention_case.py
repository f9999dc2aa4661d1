"""Random inputs of BEVFormer's two attentions, and their definitions for float64 and autograd.

Samples reach beyond the maps, and keep away from where slopes jump.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Levels = tuple[tuple[int, int], ...]
TWO: Levels = ((6, 9), (3, 5))
FOUR: Levels = ((6, 9), (3, 5), (2, 2), (1, 3))


class Spatial(NamedTuple):
    value: Tensor
    spatial_shapes: Tensor
    level_start_index: Tensor
    offsets: Tensor
    logits: Tensor
    reference_points_cam: Tensor
    visibility: Tensor


class Temporal(NamedTuple):
    value: Tensor
    spatial_shapes: Tensor
    level_start_index: Tensor
    offsets: Tensor
    logits: Tensor
    reference_points: Tensor


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
    dtype: torch.dtype = torch.float32,
    place_dtype: torch.dtype | None = None,
    requires_grad: bool = False,
) -> Spatial:
    """A point is visible every third time: some queries are seen by no camera, some by several."""
    shapes, starts, keys = _levels(levels)
    place = place_dtype or dtype
    references = (torch.rand(cameras, batch, queries, heights, 2) * 1.2 - 0.1).to(place)
    bags = (batch, queries, heads, len(levels), points)
    around = references.new_zeros(cameras, batch, queries, points, 2)
    if heights:
        around = references[:, :, :, torch.arange(points) % heights]
    offsets = _offsets(bags, around[:, :, :, None, None], shapes, place)
    visibility = torch.rand(cameras, batch, queries, heights) < 1 / 3
    value = torch.randn(batch, cameras, keys, heads, dim).to(dtype)
    logits = torch.randn(bags).flatten(3).to(dtype)
    inputs = Spatial(value, shapes, starts, offsets, logits, references, visibility)
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
    dtype: torch.dtype = torch.float32,
    place_dtype: torch.dtype | None = None,
    requires_grad: bool = False,
) -> Temporal:
    """Reference points of their own for each entry of the queue and each level."""
    shapes, starts, keys = _levels(levels)
    place = place_dtype or dtype
    references = (torch.rand(batch * entries, queries, len(levels), 2) * 1.2 - 0.1).to(place)
    bags = (batch, queries, heads, entries, len(levels), points)
    around = references.view(batch, entries, queries, len(levels), 2).transpose(1, 2)
    offsets = _offsets(bags, around[None, :, :, None, :, :, None], shapes, place)
    value = torch.randn(batch * entries, keys, heads, dim).to(dtype)
    logits = torch.randn(bags).flatten(4).to(dtype)
    inputs = Temporal(value, shapes, starts, offsets, logits, references)
    return _differentiable(inputs, requires_grad)


def _levels(levels: Levels) -> tuple[Tensor, Tensor, int]:
    shapes = torch.tensor(levels)
    areas = shapes.prod(1)
    return shapes, areas.cumsum(0) - areas, int(areas.sum())


def _offsets(
    bags: tuple[int, ...], references: Tensor, shapes: Tensor, dtype: torch.dtype
) -> Tensor:
    """Pixels, drawn again until all that use them lie off the lines between two pixels.

    `references` has one more dimension in front, over what shares an offset.
    """
    sizes = shapes.flip(1)[:, None].double()
    offsets = (torch.randn(*bags, 2) * 2).to(dtype)
    for _ in range(200):
        pixels = references.double() * sizes - 0.5 + offsets.double()
        close = ((pixels - pixels.round()).abs() < 0.02).any(0)
        if not close.any():
            return offsets
        offsets = torch.where(close, (torch.randn(*bags, 2) * 2).to(dtype), offsets)
    raise AssertionError("no offsets found")


def _differentiable(inputs, requires_grad: bool):
    for name in ("value", "offsets", "logits"):
        getattr(inputs, name).requires_grad_(requires_grad)
    return inputs


def spatial(
    value: Tensor,
    shapes: Tensor,
    starts: Tensor,
    offsets: Tensor,
    logits: Tensor,
    references: Tensor,
    visibility: Tensor,
    first_item_visibility: bool = False,
) -> Tensor:
    """The definition, camera by camera, corner by corner."""
    batch, cameras, _, heads, dim = value.shape
    queries, levels, points = offsets.shape[1], offsets.shape[3], offsets.shape[4]
    weights = logits.softmax(-1).view(batch, queries, heads, levels, points)
    seen = visibility.bool().any(-1)
    out = value.new_zeros(batch, queries, heads, dim)
    for camera in range(cameras):
        total = value.new_zeros(batch, queries, heads, dim)
        for level in range(levels):
            for point in range(points):
                around = references[camera, :, :, point % references.shape[3], None]
                sampled = bilinear(
                    value[:, camera], shapes, starts, level, around, offsets[:, :, :, level, point]
                )
                total = total + weights[:, :, :, level, point, None] * sampled
        used = seen[camera, :1].expand(batch, -1) if first_item_visibility else seen[camera]
        out = out + torch.where(used[..., None, None], total, 0)
    return (out / seen.sum(0).clamp(min=1)[..., None, None]).flatten(2)


def temporal(
    value: Tensor,
    shapes: Tensor,
    starts: Tensor,
    offsets: Tensor,
    logits: Tensor,
    references: Tensor,
) -> Tensor:
    """The definition, entry by entry, corner by corner."""
    batch, queries, heads, entries, levels, points, _ = offsets.shape
    weights = logits.softmax(-1).view(offsets.shape[:-1])
    out = value.new_zeros(batch, queries, heads, value.shape[3])
    for entry in range(entries):
        rows = [item * entries + entry for item in range(batch)]
        for level in range(levels):
            for point in range(points):
                around = references[rows, :, level, None]
                shift = offsets[:, :, :, entry, level, point]
                sampled = bilinear(value[rows], shapes, starts, level, around, shift)
                out = out + weights[:, :, :, entry, level, point, None] * sampled / entries
    return out.flatten(2)


def bilinear(
    maps: Tensor, shapes: Tensor, starts: Tensor, level: int, around: Tensor, shift: Tensor
) -> Tensor:
    """(B, Q, H, D) samples of `maps`, (B, S, H, D), at `around + shift / size`."""
    height, width = shapes[level].tolist()
    places = (around + shift / shift.new_tensor([width, height])) * shift.new_tensor(
        [width, height]
    )
    x, y = (places - 0.5).unbind(-1)
    item = torch.arange(maps.shape[0])[:, None, None]
    head = torch.arange(maps.shape[2])
    total = maps.new_zeros(*x.shape, maps.shape[3])
    for dy in (0, 1):
        for dx in (0, 1):
            column, line = x.floor() + dx, y.floor() + dy
            inside = (column >= 0) & (column < width) & (line >= 0) & (line < height)
            column, line = column.where(inside, 0).long(), line.where(inside, 0).long()
            near = ((1 - (x - column).abs()) * (1 - (y - line).abs())).where(inside, 0)
            pixel = maps[item, starts[level] + line * width + column, head]
            total = total + near[..., None] * pixel.where(inside[..., None], 0)
    return total


def expected(definition: Callable[..., Tensor], inputs, grad_out: Tensor, *more) -> list[Tensor]:
    """Output and gradients by a definition, in float64, from the inputs as they were rounded."""
    wide = type(inputs)(
        *(t.detach().double() if t.is_floating_point() else t.detach() for t in inputs)
    )
    wanted = [wide.value, wide.offsets, wide.logits]
    for tensor in wanted:
        tensor.requires_grad_()
    out = definition(*wide, *more)
    return [out.detach(), *torch.autograd.grad(out, wanted, grad_out.double())]


def out_like(inputs) -> Tensor:
    """A random gradient of the result."""
    heads, dim = inputs.value.shape[-2:]
    grad = torch.randn(*inputs.offsets.shape[:2], heads * dim)
    return grad.to(inputs.value.dtype)


def close(actual: Tensor, wanted: Tensor, dtype: torch.dtype = torch.float32) -> None:
    """Equal but for the rounding of the result to its dtype and of the sums to theirs."""
    sums = 1e-12 if dtype == torch.float64 else 5e-6
    info = torch.finfo(actual.dtype)
    atol = sums * max(1.0, wanted.abs().max().item()) + info.smallest_normal * info.eps
    torch.testing.assert_close(actual.double(), wanted, rtol=info.eps, atol=atol)


def check(backend, definition: Callable[..., Tensor], inputs, *, options=None) -> None:
    """A backend's output and every gradient follow the definition."""
    options = options or {}
    grad_out = out_like(inputs)
    out, *grads = expected(definition, inputs, grad_out, *options.values())
    floats = [t.dtype for t in inputs if t.is_floating_point()]
    dtype = torch.float64 if torch.float64 in floats else torch.float32
    result = backend.forward(*inputs, **options)
    assert result.dtype == inputs.value.dtype
    close(result, out, dtype)
    found = backend.backward(grad_out, *inputs, **options)
    likes = (inputs.value, inputs.offsets, inputs.logits)
    for actual, wanted, like in zip(found, grads, likes, strict=True):
        assert (actual.dtype, actual.shape) == (like.dtype, like.shape)
        close(actual, wanted, dtype)


def strided(inputs):
    """The same numbers, no tensor contiguous."""
    result = []
    for tensor in inputs:
        if tensor.dim() == 1:
            result.append(tensor.repeat_interleave(2)[::2])
        else:
            pair = torch.stack((tensor, tensor), -1).transpose(0, 1).contiguous()
            result.append(pair.transpose(0, 1)[..., 0])
    assert not any(tensor.is_contiguous() for tensor in result)
    return type(inputs)(*result)
