"""`ms_deform_attn` against the usual `grid_sample` formulation, and against mmcv where it runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...bench.harness import Case, floors_us, passes
from . import ms_deform_attn

Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
Operator = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Shape:
    """Sizes as BEVFormer has them: 8 heads of 32 channels."""

    batch: int
    queries: int
    levels: tuple[tuple[int, int], ...]
    points: int
    heads: int = 8
    dim: int = 32


SHAPES: Mapping[str, Shape] = {
    # One camera's cross-attention of the tiny model, then of the base model.
    "tiny-sca": Shape(1, 2500, ((15, 25),), 8),
    "base-sca": Shape(1, 9500, ((116, 200), (58, 100), (29, 50), (15, 25)), 8),
    # The base model's temporal self-attention (two BEV maps), and its decoder.
    "base-tsa": Shape(2, 40000, ((200, 200),), 4),
    "decoder": Shape(1, 900, ((200, 200),), 4),
}


def make_inputs(shape: Shape, dtype: torch.dtype, device: torch.device) -> Inputs:
    """Random values; locations uniform over the level and a tenth beyond: no help to any cache."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor(shape.levels)
    areas = sizes.prod(1)
    bags = (shape.batch, shape.queries, shape.heads, len(shape.levels), shape.points)
    value = torch.randn(shape.batch, int(areas.sum()), shape.heads, shape.dim, generator=generator)
    locations = torch.rand(*bags, 2, generator=generator) * 1.2 - 0.1
    weights = torch.rand(bags, generator=generator).flatten(3).softmax(-1).view(bags)
    return (
        value.to(device, dtype).requires_grad_(),
        sizes.to(device),
        (areas.cumsum(0) - areas).to(device),
        locations.to(device).requires_grad_(),  # 16-bit locations would miss by a pixel
        weights.to(device, dtype).requires_grad_(),
    )


def grid_sample_reference(levels: tuple[tuple[int, int], ...]) -> Operator:
    """The usual formulation: each level through `grid_sample`, the samples stacked and weighed.

    `levels` as Python numbers, so that a GPU need not be waited for.
    """

    def reference(
        value: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor, weights: Tensor
    ) -> Tensor:
        batch, _, heads, dim = value.shape
        queries = locations.shape[1]
        maps = value.permute(0, 2, 3, 1).flatten(0, 1)  # (B * H, D, S)
        grids = (2 * locations - 1).transpose(1, 2).flatten(0, 1).to(value.dtype)
        sampled, start = [], 0
        for level, (height, width) in enumerate(levels):
            one = maps[:, :, start : start + height * width].reshape(-1, dim, height, width)
            sampled.append(F.grid_sample(one, grids[:, :, level], align_corners=False))
            start += height * width
        scale = weights.transpose(1, 2).reshape(batch * heads, 1, queries, -1)
        out = (torch.stack(sampled, -2).flatten(-2) * scale).sum(-1)
        return out.view(batch, heads * dim, queries).transpose(1, 2).contiguous()

    return reference


def peers(device: torch.device) -> dict[str, Operator]:
    """Other implementations that are installed and run on the device."""
    if device.type != "cuda":
        return {}
    try:
        mmcv: Any = importlib.import_module("mmcv.ops.multi_scale_deform_attn")
        function = mmcv.MultiScaleDeformableAttnFunction
    except Exception:  # an mmcv without its compiled operators fails in several ways
        return {}

    def mmcv_operator(
        value: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor, weights: Tensor
    ) -> Tensor:
        out: Tensor = function.apply(
            value, shapes, starts, locations.to(value.dtype), weights, value.shape[0]
        )
        return out

    return {"mmcv": mmcv_operator}


def cases(names: list[str], dtype: torch.dtype, device: torch.device) -> Iterator[Case]:
    """A forward and a forward+backward case for each of the named shapes."""
    for name in names:
        shape = SHAPES[name]
        inputs = make_inputs(shape, dtype, device)
        operators: dict[str, Operator] = {
            "grid_sample": grid_sample_reference(shape.levels),
            "turbo_physai": ms_deform_attn,
            **peers(device),
        }
        value, _, _, locations, weights = inputs
        floors = floors_us(
            device,
            (value, locations, weights),
            value.new_empty(shape.batch, shape.queries, shape.heads * shape.dim),
            4 * weights.numel() * shape.dim * value.element_size(),
        )
        yield from passes(name, operators, inputs, (value, locations, weights), floors)
