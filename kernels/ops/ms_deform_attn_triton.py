"""`ms_deform_attn` in Triton, for CUDA devices.

A program owns a block of queries of one head of one batch item, times the head's channels. Queries
of one head side by side read pixels that lie side by side, and the head's first pixel is one
address for the whole program. The loops over levels and points run at run time: unrolled, they
spill registers. Nothing is read on the host, so launches can be recorded into CUDA graphs.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import _triton_launch as launch
from . import _triton_sums as pixel_sums
from ._triton_attention import program_rows
from ._triton_launch import Size
from ._triton_sampling import (
    add_sample,
    add_sample_gradient,
    channels,
    load_channels,
    pack,
    pair_pointer,
    store_channels,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "ms_deform_attn"


def forward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    """See `ms_deform_attn`; the floating-point dtypes are those in `_triton_launch.DTYPES`."""
    return _forward(
        value, spatial_shapes, level_start_index, sampling_locations, attention_weights, None
    )


def backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    *,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `ms_deform_attn_backward`.

    Args:
        deterministic: give the same bits at every call. The gradient of `value` is summed in an
            order that changes from call to call; in 64-bit integers, at twice the memory, order
            does not matter. A step is the largest gradient times the largest weight, times
            Q * L * P / 2**60 or less. The other gradients have one order always.
    """
    return _backward(
        grad_out,
        value,
        spatial_shapes,
        level_start_index,
        sampling_locations,
        attention_weights,
        deterministic,
        None,
    )


def tune(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    path: Path | None = None,
) -> dict[str, dict[Size, float]]:
    """Measure program sizes on these inputs' GPU and save the fastest for later processes.

    Args:
        path: the file to update; by default the one that is read (see `_triton_launch`).

    Returns:
        Milliseconds by size, for "forward" and for "backward".

    Raises:
        RuntimeError: the inputs are not on a CUDA device.
    """
    inputs = (value, spatial_shapes, level_start_index, sampling_locations, attention_weights)
    batch, _, heads, dim = value.shape
    grad_out = value.new_ones(batch, sampling_locations.shape[1], heads * dim)
    runs: dict[str, Callable[[Size], object]] = {
        "forward": lambda size: _forward(*inputs, size),
        "backward": lambda size: _backward(grad_out, *inputs, False, size),
    }
    return launch.tune_operator(NAME, value, runs, path)


def size_for(kernel: str, value: Tensor) -> Size:
    """The size that "forward" or "backward" runs with: a measured one, else the built-in one."""
    return launch.size_for(NAME, kernel, value)


def _forward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    size: Size | None,
) -> Tensor:
    launch.check_dtypes(value, sampling_locations, attention_weights)
    batch, keys, heads, dim = value.shape
    _, queries, _, levels, points, _ = sampling_locations.shape
    out = torch.empty(batch, queries, heads * dim, dtype=value.dtype, device=value.device)
    if out.numel() == 0:
        return out
    size = size or size_for("forward", value)
    with launch.device_of(value):
        _forward_kernel[(batch * heads * triton.cdiv(queries, size.rows),)](
            out,
            value.contiguous(),
            spatial_shapes.contiguous(),
            level_start_index.contiguous(),
            launch.aligned_pairs(sampling_locations),
            attention_weights.contiguous(),
            keys,
            queries,
            levels,
            points,
            HEADS=heads,
            **size.tile("forward", value),
            **size.options(),
        )
    return out


def _backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    deterministic: bool,
    size: Size | None,
) -> tuple[Tensor, Tensor, Tensor]:
    launch.check_dtypes(grad_out, value, sampling_locations, attention_weights)
    batch, keys, heads, _ = value.shape
    _, queries, _, levels, points, _ = sampling_locations.shape
    locations, weights = launch.aligned_pairs(sampling_locations), attention_weights.contiguous()
    grad_locations, grad_weights = torch.empty_like(locations), torch.empty_like(weights)
    sums = pixel_sums.zeros(value, deterministic)
    if grad_out.numel() == 0 or weights.numel() == 0:
        return sums.to(value.dtype), grad_locations, grad_weights
    size = size or size_for("backward", value)
    steps = None
    if deterministic:
        # A pixel gets at most one term a sample: a gradient, a weight, a factor of at most 1.
        peak = grad_out.abs().amax().float() * weights.abs().amax().float()
        steps = pixel_sums.steps(peak, queries * levels * points)
        size = launch.deterministic_size(size)
    with launch.device_of(value):
        _backward_kernel[(batch * heads * triton.cdiv(queries, size.rows),)](
            sums,
            grad_locations,
            grad_weights,
            grad_out.contiguous(),
            value.contiguous(),
            spatial_shapes.contiguous(),
            level_start_index.contiguous(),
            locations,
            weights,
            steps,
            keys,
            queries,
            levels,
            points,
            HEADS=heads,
            **size.tile("backward", value),
            **size.options(),
        )
    grad_value = pixel_sums.gradient(sums, steps, value.dtype)
    return grad_value, grad_locations, grad_weights


@triton.jit(do_not_specialize=["keys", "queries", "levels", "points"])
def _forward_kernel(
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
        height = tl.load(shapes_ptr + 2 * level).to(tl.int32)
        width = tl.load(shapes_ptr + 2 * level + 1).to(tl.int32)
        level_pixel = first_pixel + tl.load(starts_ptr + level).to(tl.int64) * KEY
        for _ in range(points):
            location = tl.load(locations + (first_sample + sample))
            location_x, location_y = unpack(location, locations_ptr.dtype.element_ty)
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


@triton.jit(do_not_specialize=["keys", "queries", "levels", "points"])
def _backward_kernel(
    grad_value_ptr,
    grad_locations_ptr,
    grad_weights_ptr,
    grad_out_ptr,
    value_ptr,
    shapes_ptr,
    starts_ptr,
    locations_ptr,
    weights_ptr,
    steps_ptr,
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
    """Adds to grad_value, float32, or int64 in steps of 1 / steps when `steps_ptr` is given."""
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
        height = tl.load(shapes_ptr + 2 * level).to(tl.int32)
        width = tl.load(shapes_ptr + 2 * level + 1).to(tl.int32)
        level_pixel = first_pixel + tl.load(starts_ptr + level).to(tl.int64) * KEY
        for _ in range(points):
            location = tl.load(locations + (first_sample + sample))
            location_x, location_y = unpack(location, locations_ptr.dtype.element_ty)
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
            grad_x *= weight * width
            grad_y *= weight * height
            grad_weight = grad_weight.to(grad_weights_ptr.dtype.element_ty)
            tl.store(grad_weights + (first_sample + sample), grad_weight, live)
            pair = pack(grad_x, grad_y, grad_locations_ptr.dtype.element_ty)
            tl.store(grad_locations + (first_sample + sample), pair, live)
            sample += 1
