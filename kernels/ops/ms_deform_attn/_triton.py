"""`ms_deform_attn` in Triton.

A program owns a block of queries of one head of one batch item, times the head's channels. Queries
of one head side by side read pixels that lie side by side, and the head's first pixel is one
address for the whole program. The loops over levels and points run at run time: unrolled, they
spill registers. Nothing is read on the host, so launches can be recorded into CUDA graphs.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ...common.triton import launch
from ...common.triton.attention import program_rows
from ...common.triton.operator import AttentionKernels
from ...common.triton.sampling import (
    add_sample,
    add_sample_gradient,
    channels,
    level_of,
    load_channels,
    load_pair,
    pair_pointer,
    store_channels,
    store_sample_gradient,
)
from . import Inputs

_SIZES = ["keys", "queries", "levels", "points"]


@triton.jit(do_not_specialize=_SIZES)
def forward_kernel(
    out_ptr,
    value_ptr,
    shapes_ptr,
    starts_ptr,
    locations_ptr,
    weights_ptr,
    keys,
    queries,
    levels,
    points,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    LANES: tl.constexpr,
    PARTS: tl.constexpr,
    VECTOR: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Out: (B, Q, H, D). LANES is DIM rounded up to a power of two."""
    KEY: tl.constexpr = HEADS * DIM
    item, head, first_query, query, live = program_rows(queries, HEADS, ROWS)
    first_row = (item * queries + first_query) * HEADS + head
    channel = channels(ROWS, LANES, PARTS, VECTOR)

    samples = levels * points
    first_pixel = value_ptr + (item * keys * KEY + head * DIM)
    locations = pair_pointer(locations_ptr) + first_row * samples
    weights = weights_ptr + first_row * samples
    first_sample = query * (HEADS * samples)
    sample = 0
    total = tl.zeros(channel[0].shape, tl.float32), tl.zeros(channel[0].shape, tl.float32)
    for level in range(levels):
        height, width, start = level_of(shapes_ptr, starts_ptr, level, KEY)
        level_pixel = first_pixel + start
        for _ in range(points):
            location_x, location_y = load_pair(
                locations, first_sample + sample, locations_ptr.dtype.element_ty
            )
            weight = tl.load(weights + (first_sample + sample)).to(tl.float32)
            total = add_sample(
                total,
                level_pixel,
                channel,
                location_x * width - 0.5,
                location_y * height - 0.5,
                weight,
                width,
                height,
                KEY,
                DIM,
                PARTS,
            )
            sample += 1
    out = out_ptr + first_row * DIM + query[:, None] * KEY
    store_channels(out, channel, total, live, DIM, PARTS)


@triton.jit(do_not_specialize=_SIZES)
def backward_kernel(
    grad_value_ptr,
    grad_locations_ptr,
    grad_weights_ptr,
    grad_out_ptr,
    steps_ptr,
    value_ptr,
    shapes_ptr,
    starts_ptr,
    locations_ptr,
    weights_ptr,
    keys,
    queries,
    levels,
    points,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    LANES: tl.constexpr,
    PARTS: tl.constexpr,
    VECTOR: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Adds to grad_value, float32, or int64 in steps of 1 / steps when `steps_ptr` is given; not
    where its pointer is None."""
    KEY: tl.constexpr = HEADS * DIM
    item, head, first_query, query, live = program_rows(queries, HEADS, ROWS)
    first_row = (item * queries + first_query) * HEADS + head
    channel = channels(ROWS, LANES, PARTS, VECTOR)

    samples = levels * points
    first_pixel = item * keys * KEY + head * DIM
    locations = pair_pointer(locations_ptr) + first_row * samples
    weights = weights_ptr + first_row * samples
    grad_locations = pair_pointer(grad_locations_ptr) + first_row * samples
    grad_weights = grad_weights_ptr + first_row * samples
    first_sample = query * (HEADS * samples)
    sample = 0
    grad_out = grad_out_ptr + first_row * DIM + query[:, None] * KEY
    grad = load_channels(grad_out, channel, DIM, PARTS)
    steps = 1.0 if steps_ptr is None else tl.load(steps_ptr)
    for level in range(levels):
        height, width, start = level_of(shapes_ptr, starts_ptr, level, KEY)
        level_pixel = first_pixel + start
        for _ in range(points):
            location_x, location_y = load_pair(
                locations, first_sample + sample, locations_ptr.dtype.element_ty
            )
            # Zero for rows past the last query: they add nothing to grad_value.
            weight = tl.load(weights + (first_sample + sample), live, other=0).to(tl.float32)
            grad_weight, grad_x, grad_y = add_sample_gradient(
                grad_value_ptr,
                value_ptr,
                level_pixel,
                channel,
                location_x * width - 0.5,
                location_y * height - 0.5,
                weight,
                width,
                height,
                grad,
                steps,
                KEY,
                DIM,
                PARTS,
            )
            # A location of 1 is `width` pixels.
            grads = grad_weight, grad_x * width, grad_y * height
            store_sample_gradient(
                grad_weights,
                grad_locations,
                first_sample + sample,
                grads,
                live,
                grad_locations_ptr.dtype.element_ty,
            )
            sample += 1


def _prepare(inputs: Inputs) -> list[Tensor]:
    """Contiguous, pairs aligned."""
    value, shapes, starts, locations, weights = inputs
    return [
        value.contiguous(),
        shapes.contiguous(),
        starts.contiguous(),
        launch.aligned_pairs(locations),
        weights.contiguous(),
    ]


def _sizes(inputs: Inputs) -> tuple[int, ...]:
    _, queries, _, levels, points, _ = inputs.sampling_locations.shape
    return inputs.value.shape[1], queries, levels, points


KERNELS = AttentionKernels(
    "ms_deform_attn",
    forward_kernel,
    backward_kernel,
    _prepare,
    _sizes,
    lambda inputs, _: {"HEADS": inputs.value.shape[2]},
    has_softmax=False,
)
forward, backward = KERNELS.forward, KERNELS.backward
