"""`spatial_cross_attention` against the official formulation, alone and as a whole layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...bench.bev import apply_linear, bird_grid
from ...bench.harness import Case, floors_us, passes
from ..ms_deform_attn.bench import grid_sample_reference
from . import spatial_cross_attention

Levels = tuple[tuple[int, int], ...]
_BASE: Levels = ((116, 200), (58, 100), (29, 50), (15, 25))


@dataclass(frozen=True)
class Shape:
    """Sizes as BEVFormer has them; `layer`: with the projections around the operator."""

    bird: tuple[int, int]
    levels: Levels
    layer: bool = False
    batch: int = 1
    cameras: int = 6
    points: int = 8
    heights: int = 4
    heads: int = 8
    dim: int = 32


SHAPES: Mapping[str, Shape] = {
    "tiny-sca": Shape((50, 50), ((15, 25),)),
    "tiny-layer": Shape((50, 50), ((15, 25),), layer=True),
    "base-sca": Shape((200, 200), _BASE),
    "base-layer": Shape((200, 200), _BASE, layer=True),
}


def project(shape: Shape) -> tuple[Tensor, Tensor]:
    """Reference points and visibility of cameras in a circle, as a car carries them.

    Five cameras see 63.5 degrees, the last one 85.5: with six, 1.12 cameras see a query, and the
    last one 9,500 of the 40,000 queries of the base model.

    Returns:
        (N, B, Q, Z, 2) as (x, y) and (N, B, Q, Z) bool.
    """
    metres = (bird_grid(*shape.bird) - 0.5) * 102.4
    angle = torch.atan2(metres[:, 1], metres[:, 0])
    distance = metres.norm(dim=1)
    fields = torch.full((shape.cameras,), math.radians(63.5))
    fields[-1] = math.radians(85.5)
    middles = torch.arange(shape.cameras) * (2 * math.pi / shape.cameras) - math.pi
    to_side = torch.remainder(angle - middles[:, None] + math.pi, 2 * math.pi) - math.pi
    heights = torch.linspace(-2.5, 2.0, shape.heights)
    x = (to_side / fields[:, None] + 0.5)[..., None].expand(-1, -1, shape.heights)
    y = (0.45 - 0.7 * heights / distance[:, None]).expand_as(x)
    references = torch.stack((x, y), -1)
    visible = ((references > 0) & (references < 1)).all(-1)
    return (
        references[:, None].repeat(1, shape.batch, 1, 1, 1),
        visible[:, None].repeat(1, shape.batch, 1, 1),
    )


class Layer(nn.Module):
    """The projections of the official layer; dropout is left out, which costs both alike."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.heads * shape.dim
        samples = shape.heads * len(shape.levels) * shape.points
        self.shape = shape
        self.sampling_offsets = nn.Linear(width, samples * 2)
        self.attention_weights = nn.Linear(width, samples)
        self.value_proj = nn.Linear(width, width)
        self.output_proj = nn.Linear(width, width)
        with torch.no_grad():
            self.sampling_offsets.bias.uniform_(-8, 8)

    def offsets_logits(self, query: Tensor, *, fused: bool) -> tuple[Tensor, Tensor]:
        """(B, Q, H, L, P, 2) and (B, Q, H, L * P)"""
        s = self.shape
        offsets = apply_linear(self.sampling_offsets, query, fused=fused)
        logits = apply_linear(self.attention_weights, query, fused=fused)
        return (
            offsets.view(*query.shape[:2], s.heads, len(s.levels), s.points, 2),
            logits.view(*query.shape[:2], s.heads, len(s.levels) * s.points),
        )

    def maps(self, features: Tensor, *, fused: bool) -> Tensor:
        """(N, S, B, C) to (B, N, S, H, D)"""
        cameras, keys, batch, _ = features.shape
        rows = features.permute(2, 0, 1, 3).reshape(batch * cameras, keys, -1)
        s = self.shape
        value = apply_linear(self.value_proj, rows, fused=fused)
        return value.view(batch, cameras, keys, s.heads, s.dim)

    def fused(
        self, query: Tensor, features: Tensor, sizes: Tensor, starts: Tensor, *seen: Tensor
    ) -> Tensor:
        """The layer around the operator."""
        slots = spatial_cross_attention(
            self.maps(features, fused=True),
            sizes,
            starts,
            *self.offsets_logits(query, fused=True),
            *seen,
        )
        return apply_linear(self.output_proj, slots, fused=True) + query

    def official(
        self,
        query: Tensor,
        features: Tensor,
        sizes: Tensor,
        starts: Tensor,
        references: Tensor,
        visibility: Tensor,
    ) -> Tensor:
        """The layer as published: its two projections run on a copy of the query per camera."""
        slots = rebatched(
            self.maps(features, fused=False),
            sizes,
            starts,
            references,
            visibility,
            (query,),
            self.official_pair,
        )
        return apply_linear(self.output_proj, slots, fused=False) + query

    def official_pair(self, copies: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Offsets and logits of the copied queries."""
        return self.offsets_logits(copies[0], fused=False)


def rebatched(
    value: Tensor,
    sizes: Tensor,
    starts: Tensor,
    references: Tensor,
    visibility: Tensor,
    per_query: tuple[Tensor, ...],
    offsets_logits: Callable[[tuple[Tensor, ...]], tuple[Tensor, Tensor]],
) -> Tensor:
    """The published formulation.

    What belongs to a query is copied to each camera that sees it (in the first item of the batch),
    every camera's list is padded to the longest, locations and weights are written out, and the
    cameras' results are added up query by query.
    """
    batch, cameras, _, heads, dim = value.shape
    lists = [camera[0].sum(-1).nonzero().squeeze(-1) for camera in visibility]
    longest = max(map(len, lists))
    queries, anchors = references.shape[2:4]
    copies = [t.new_zeros(batch, cameras, longest, *t.shape[2:]) for t in per_query]
    points = references.new_zeros(batch, cameras, longest, anchors, 2)
    for item in range(batch):
        for camera, seen in enumerate(lists):
            for copy, original in zip(copies, per_query, strict=True):
                copy[item, camera, : len(seen)] = original[item, seen]
            points[item, camera, : len(seen)] = references[camera, item, seen]
    offsets, logits = offsets_logits(tuple(copy.flatten(0, 1) for copy in copies))
    per_level = offsets.shape[4]
    weights = logits.softmax(-1).view(offsets.shape[:-1])
    shifts = (offsets / sizes.flip(-1)[:, None]).view(
        *offsets.shape[:4], per_level // anchors, anchors, 2
    )
    locations = (points.flatten(0, 1)[:, :, None, None, None] + shifts).view(offsets.shape)
    sampled = grid_sample_reference(_pairs(sizes))(
        value.flatten(0, 1), sizes, starts, locations, weights
    ).view(batch, cameras, longest, heads * dim)
    slots = sampled.new_zeros(batch, queries, heads * dim)
    for item in range(batch):
        for camera, seen in enumerate(lists):
            slots[item, seen] += sampled[item, camera, : len(seen)]
    count = (visibility.sum(-1) > 0).permute(1, 2, 0).sum(-1).clamp(min=1.0)
    return slots / count[..., None]


def _pairs(sizes: Tensor) -> Levels:
    return tuple((int(height), int(width)) for height, width in sizes.tolist())


def official(
    value: Tensor,
    sizes: Tensor,
    starts: Tensor,
    offsets: Tensor,
    logits: Tensor,
    references: Tensor,
    visibility: Tensor,
) -> Tensor:
    """The operator as published, with offsets and logits copied in place of the query."""

    def pair(copies: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        return copies[0], copies[1]

    return rebatched(value, sizes, starts, references, visibility, (offsets, logits), pair)


def make_inputs(
    shape: Shape, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The operator's inputs; offsets of a few pixels, as training leaves them."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor(shape.levels)
    areas = sizes.prod(1)
    queries, keys = math.prod(shape.bird), int(areas.sum())
    bags = (shape.batch, queries, shape.heads, len(shape.levels), shape.points)
    value = torch.randn(
        shape.batch, shape.cameras, keys, shape.heads, shape.dim, generator=generator
    )
    offsets = torch.randn(*bags, 2, generator=generator) * 4
    logits = torch.randn(bags, generator=generator).flatten(3)
    references, visibility = project(shape)
    return (
        value.to(device, dtype).requires_grad_(),
        sizes.to(device),
        (areas.cumsum(0) - areas).to(device),
        offsets.to(device, dtype).requires_grad_(),
        logits.to(device, dtype).requires_grad_(),
        references.to(device),  # 16-bit reference points would miss by a pixel
        visibility.to(device),
    )


def cases(names: list[str], dtype: torch.dtype, device: torch.device) -> Iterator[Case]:
    """A forward and a forward+backward case for each of the named shapes."""
    for name in names:
        shape = SHAPES[name]
        yield from (_layer_cases if shape.layer else _operator_cases)(name, shape, dtype, device)


def _operator_cases(
    name: str, shape: Shape, dtype: torch.dtype, device: torch.device
) -> Iterator[Case]:
    inputs = make_inputs(shape, dtype, device)
    value, _, _, offsets, logits, references, visibility = inputs
    pairs = visibility.any(-1).sum().item()
    samples = pairs * shape.heads * len(shape.levels) * shape.points
    floors = floors_us(
        device,
        (value, offsets, logits, references, visibility),
        offsets.new_empty(*offsets.shape[:2], shape.heads * shape.dim),
        4 * samples * shape.dim * value.element_size(),
    )
    operators: dict[str, Callable[..., Tensor]] = {
        "official": official,
        "turbo_physai": spatial_cross_attention,
    }
    yield from passes(name, operators, inputs, (value, offsets, logits), floors)


def _layer_cases(
    name: str, shape: Shape, dtype: torch.dtype, device: torch.device
) -> Iterator[Case]:
    layer = Layer(shape).to(device, dtype)
    value, sizes, starts, _, _, references, visibility = make_inputs(shape, dtype, device)
    features = value.detach().flatten(3).permute(1, 2, 0, 3).contiguous().requires_grad_()
    query = torch.randn(shape.batch, math.prod(shape.bird), features.shape[3], dtype=dtype)
    query = query.to(device).requires_grad_()
    operators: dict[str, Callable[..., Tensor]] = {
        "official": layer.official,
        "turbo_physai": layer.fused,
    }
    inputs = (query, features, sizes, starts, references, visibility)
    wanted = (query, features, *layer.parameters())
    yield from passes(name, operators, inputs, wanted)
