"""`temporal_self_attention` against the official formulation, alone and as a whole layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...bench.bev import apply_linear, bird_grid
from ...bench.harness import Case, floors_us, passes
from ..linear import linear_of_concatenation
from ..ms_deform_attn.bench import grid_sample_reference
from . import temporal_self_attention


@dataclass(frozen=True)
class Shape:
    """Sizes as BEVFormer has them; `layer`: with the projections around the operator."""

    bird: tuple[int, int]
    layer: bool = False
    batch: int = 1
    entries: int = 2
    points: int = 4
    heads: int = 8
    dim: int = 32


SHAPES: Mapping[str, Shape] = {
    "tiny-tsa": Shape((50, 50)),
    "tiny-layer": Shape((50, 50), layer=True),
    "base-tsa": Shape((200, 200)),
    "base-layer": Shape((200, 200), layer=True),
}


class Layer(nn.Module):
    """The projections of the official layer; dropout is left out, which costs both alike."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.heads * shape.dim
        samples = shape.heads * shape.entries * shape.points
        self.shape = shape
        self.sampling_offsets = nn.Linear(2 * width, samples * 2)
        self.attention_weights = nn.Linear(2 * width, samples)
        self.value_proj = nn.Linear(width, width)
        self.output_proj = nn.Linear(width, width)
        with torch.no_grad():
            self.sampling_offsets.bias.uniform_(-4, 4)

    def maps(self, queue: Tensor, *, fused: bool) -> Tensor:
        """(B * T, S, C) to (B * T, S, H, D)"""
        value = apply_linear(self.value_proj, queue, fused=fused)
        return value.view(*queue.shape[:2], self.shape.heads, -1)

    def laid_out(self, offsets: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """(B, Q, H, T, L, P, 2) and (B, Q, H, T, L * P)"""
        s = self.shape
        bags = (*offsets.shape[:2], s.heads, s.entries)
        return offsets.view(*bags, 1, s.points, 2), logits.view(*bags, s.points)

    def fused(
        self, query: Tensor, queue: Tensor, sizes: Tensor, starts: Tensor, references: Tensor
    ) -> Tensor:
        """The layer around the operator."""
        previous = queue[: query.shape[0]]
        offsets, logits = (
            linear_of_concatenation(previous, query, one.weight, one.bias)
            for one in (self.sampling_offsets, self.attention_weights)
        )
        out = temporal_self_attention(
            self.maps(queue, fused=True),
            sizes,
            starts,
            *self.laid_out(offsets, logits),
            references,
        )
        return apply_linear(self.output_proj, out, fused=True) + query

    def official(
        self, query: Tensor, queue: Tensor, sizes: Tensor, starts: Tensor, references: Tensor
    ) -> Tensor:
        """The layer as published."""
        both = torch.cat([queue[: query.shape[0]], query], -1)
        pair = self.laid_out(self.sampling_offsets(both), self.attention_weights(both))
        out = official(self.maps(queue, fused=False), sizes, starts, *pair, references)
        return apply_linear(self.output_proj, out, fused=False) + query


def official(
    value: Tensor,
    sizes: Tensor,
    starts: Tensor,
    offsets: Tensor,
    logits: Tensor,
    references: Tensor,
) -> Tensor:
    """The published formulation: the queue moved into the batch, locations and weights written out,
    the mean over a permuted result."""
    batch, queries, heads, entries, levels, points, _ = offsets.shape
    weights = logits.softmax(-1).view(offsets.shape[:-1])
    weights = weights.permute(0, 3, 1, 2, 4, 5).reshape(-1, queries, heads, levels, points)
    moved = offsets.permute(0, 3, 1, 2, 4, 5, 6).reshape(*weights.shape, 2)
    locations = references[:, :, None, :, None] + moved / sizes.flip(-1)[:, None]
    pairs = tuple((int(height), int(width)) for height, width in sizes.tolist())
    sampled = grid_sample_reference(pairs)(value, sizes, starts, locations, weights.contiguous())
    out = sampled.permute(1, 2, 0).view(queries, -1, batch, entries).mean(-1)
    return out.permute(2, 0, 1)


def make_inputs(
    shape: Shape, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The operator's inputs: the map's own cells as reference points, offsets of a few pixels."""
    generator = torch.Generator().manual_seed(0)
    queries, rows = math.prod(shape.bird), shape.batch * shape.entries
    bags = (shape.batch, queries, shape.heads, shape.entries, 1, shape.points)
    value = torch.randn(rows, queries, shape.heads, shape.dim, generator=generator)
    offsets = torch.randn(*bags, 2, generator=generator) * 2
    logits = torch.randn(bags, generator=generator).flatten(4)
    references = bird_grid(*shape.bird)[:, None].repeat(rows, 1, 1, 1)
    return (
        value.to(device, dtype).requires_grad_(),
        torch.tensor([shape.bird], device=device),
        torch.tensor([0], device=device),
        offsets.to(device, dtype).requires_grad_(),
        logits.to(device, dtype).requires_grad_(),
        references.to(device),  # 16-bit reference points would miss by a pixel
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
    value, _, _, offsets, logits, references = inputs
    floors = floors_us(
        device,
        (value, offsets, logits, references),
        offsets.new_empty(*offsets.shape[:2], shape.heads * shape.dim),
        4 * logits.numel() * shape.dim * value.element_size(),
    )
    operators: dict[str, Callable[..., Tensor]] = {
        "official": official,
        "turbo_physai": temporal_self_attention,
    }
    yield from passes(name, operators, inputs, (value, offsets, logits), floors)


def _layer_cases(
    name: str, shape: Shape, dtype: torch.dtype, device: torch.device
) -> Iterator[Case]:
    layer = Layer(shape).to(device, dtype)
    value, sizes, starts, _, _, references = make_inputs(shape, dtype, device)
    queue = value.detach().flatten(2).requires_grad_()
    query = torch.randn(shape.batch, *queue.shape[1:], dtype=dtype).to(device).requires_grad_()
    operators: dict[str, Callable[..., Tensor]] = {
        "official": layer.official,
        "turbo_physai": layer.fused,
    }
    wanted = (query, queue, *layer.parameters())
    yield from passes(name, operators, (query, queue, sizes, starts, references), wanted)
