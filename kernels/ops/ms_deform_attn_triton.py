"""`ms_deform_attn` in Triton, for CUDA devices.

A program owns a block of queries of one head of one batch item, times the head's channels. Queries
of one head side by side read pixels that lie side by side, and the head's first pixel is one
address for the whole program. The loops over levels and points run at run time: unrolled, they
spill registers. Nothing is read on the host, so launches can be recorded into CUDA graphs.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import _triton_launch as launch
from ._triton_launch import Size
from ._triton_sampling import across, bilinear_axis, inside, pack, pair_pointer, unpack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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
    if value.device.type != "cuda":
        raise RuntimeError(f"sizes are measured on a CUDA device, not on {value.device}")
    inputs = (value, spatial_shapes, level_start_index, sampling_locations, attention_weights)
    path = path or launch.size_file()
    grad_out = torch.ones_like(forward(*inputs))
    runs: dict[str, Callable[[Size], object]] = {
        "forward": lambda size: _forward(*inputs, size),
        "backward": lambda size: _backward(grad_out, *inputs, False, size),
    }
    with launch.device_of(value):
        return {
            kernel: launch.tune(_key(kernel, value), candidates(kernel, value.shape[3]), run, path)
            for kernel, run in runs.items()
        }


def default_size(kernel: str, head_dim: int) -> Size:
    """The built-in size of "forward" or "backward": one warp, eight channels a thread.

    Numbers of a row change threads for every sample. Inside a warp they are shuffled; between warps
    that would take barriers (in Triton 3.6 always, since 3.9 for the gradients).
    """
    lanes = triton.next_power_of_2(head_dim)
    return Size(min(32, 256 // lanes), warps=1, registers=64 if kernel == "forward" else None)


def deterministic_size(size: Size) -> Size:
    """Half the rows: 64-bit terms take twice the registers."""
    return replace(size, rows=max(1, size.rows // 2))


def candidates(kernel: str, head_dim: int) -> list[Size]:
    """The sizes that `tune` tries: 4 to 16 channels a thread."""
    lanes = triton.next_power_of_2(head_dim)
    limits = (None, 64, 80) if kernel == "forward" else (None, 96, 128)
    return [
        Size(rows, warps, limit)
        for warps in (1, 2, 4, 8)
        for rows in (1, 2, 4, 8, 16, 32, 64, 128)
        if 4 <= rows * lanes // (32 * warps) <= 16
        for limit in limits
    ]


def _key(kernel: str, value: Tensor) -> str:
    arch = launch.architecture(value.device)
    return launch.key(f"ms_deform_attn_{kernel}", arch, value.dtype, value.shape[3])


def size_for(kernel: str, value: Tensor) -> Size:
    """The size that "forward" or "backward" runs with: a measured one, else the built-in one."""
    measured = launch.measured(launch.size_file()).get(_key(kernel, value))
    return measured or default_size(kernel, value.shape[3])


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
            DIM=dim,
            LANES=triton.next_power_of_2(dim),
            ROWS=size.rows,
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
    batch, keys, heads, dim = value.shape
    _, queries, _, levels, points, _ = sampling_locations.shape
    locations, weights = launch.aligned_pairs(sampling_locations), attention_weights.contiguous()
    grad_locations, grad_weights = torch.empty_like(locations), torch.empty_like(weights)
    # 16-bit sums would lose most of what many queries add to one pixel, and on sm_80 an atomic
    # addition of 16-bit numbers is a loop of compare-and-swap.
    sums = torch.zeros(
        value.shape, dtype=torch.int64 if deterministic else torch.float32, device=value.device
    )
    if grad_out.numel() == 0 or weights.numel() == 0:
        return sums.to(value.dtype), grad_locations, grad_weights
    steps = _steps(grad_out, weights, queries * levels * points) if deterministic else None
    size = size or size_for("backward", value)
    if deterministic:
        size = deterministic_size(size)
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
            DIM=dim,
            LANES=triton.next_power_of_2(dim),
            ROWS=size.rows,
            **size.options(),
        )
    grad_value = sums if steps is None else sums.to(torch.float32) / steps
    return grad_value.to(value.dtype), grad_locations, grad_weights


def _steps(grad_out: Tensor, weights: Tensor, most_terms: int) -> Tensor:
    """How many integer steps a gradient of 1 is: the power of two that just cannot overflow.

    A term is a gradient times a weight times a bilinear factor of at most 1, and a pixel gets at
    most one a sample. Not finite or zero when a gradient or a weight is not finite: dividing by it
    then makes all of the result inf or NaN, which is what a gradient scaler looks for.
    """
    peak = grad_out.abs().amax().float() * weights.abs().amax().float()
    exponent = 62 - most_terms.bit_length() - peak.log2().ceil()
    return exponent.clamp(max=126).exp2()


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
    ROWS: tl.constexpr,
):
    """Out: (B, Q, H, D). LANES is DIM rounded up to a power of two."""
    KEY: tl.constexpr = HEADS * DIM
    blocks = tl.cdiv(queries, ROWS)
    item = (tl.program_id(0) // blocks // HEADS).to(tl.int64)
    head = tl.program_id(0) // blocks % HEADS
    query = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    # Rows past the last query repeat it, and are not stored: no load needs a mask.
    row = (item * queries + tl.minimum(query, queries - 1)) * HEADS + head
    lane = tl.arange(0, LANES)[None, :]
    used = lane < DIM

    first_pixel = value_ptr + (item * keys * KEY + head * DIM) + lane
    locations = pair_pointer(locations_ptr) + row * (levels * points)
    weights = weights_ptr + row * (levels * points)
    total = tl.zeros((ROWS, LANES), tl.float32)
    for level in range(levels):
        height = tl.load(shapes_ptr + 2 * level).to(tl.int32)
        width = tl.load(shapes_ptr + 2 * level + 1).to(tl.int32)
        level_pixel = first_pixel + tl.load(starts_ptr + level).to(tl.int64) * KEY
        for _ in range(points):
            location_x, location_y = unpack(tl.load(locations), locations_ptr.dtype.element_ty)
            weight = tl.load(weights).to(tl.float32)
            x, left, right = bilinear_axis(location_x, width)
            y, top, bottom = bilinear_axis(location_y, height)
            w00 = across(weight * top * left, LANES)
            w01 = across(weight * top * right, LANES)
            w10 = across(weight * bottom * left, LANES)
            w11 = across(weight * bottom * right, LANES)
            above = level_pixel + (y * width + x)[:, None].to(tl.int64) * KEY
            below = above + width.to(tl.int64) * KEY
            # A weight of zero needs no load, and one that is outside must have none.
            v00 = tl.load(above, (w00 != 0) & used, other=0).to(tl.float32)
            v01 = tl.load(above + KEY, (w01 != 0) & used, other=0).to(tl.float32)
            v10 = tl.load(below, (w10 != 0) & used, other=0).to(tl.float32)
            v11 = tl.load(below + KEY, (w11 != 0) & used, other=0).to(tl.float32)
            total += v00 * w00
            total += v01 * w01
            total += v10 * w10
            total += v11 * w11
            locations += 1
            weights += 1
    stored = (query < queries)[:, None] & used
    out = out_ptr + row[:, None] * DIM + lane
    tl.store(out, total.to(out_ptr.dtype.element_ty), stored)


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
    ROWS: tl.constexpr,
):
    """Adds to grad_value, float32, or int64 in steps of 1 / steps when `steps_ptr` is given."""
    KEY: tl.constexpr = HEADS * DIM
    blocks = tl.cdiv(queries, ROWS)
    item = (tl.program_id(0) // blocks // HEADS).to(tl.int64)
    head = tl.program_id(0) // blocks % HEADS
    query = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    live = query < queries
    row = (item * queries + tl.minimum(query, queries - 1)) * HEADS + head
    # In fours also where eight 16-bit values would fit one load: additions to float32 come in
    # fours, and numbers that change threads in between go through shared memory.
    lane = tl.max_contiguous(tl.arange(0, LANES), 4)[None, :]
    used = lane < DIM

    first_pixel = (item * keys * KEY + head * DIM) + lane
    sample = row * (levels * points)
    locations = pair_pointer(locations_ptr) + sample
    weights = weights_ptr + sample
    grad_locations = pair_pointer(grad_locations_ptr) + sample
    grad_weights = grad_weights_ptr + sample
    grad = tl.load(grad_out_ptr + row[:, None] * DIM + lane, used, other=0).to(tl.float32)
    steps = 1.0 if steps_ptr is None else tl.load(steps_ptr)
    for level in range(levels):
        height = tl.load(shapes_ptr + 2 * level).to(tl.int32)
        width = tl.load(shapes_ptr + 2 * level + 1).to(tl.int32)
        level_pixel = first_pixel + tl.load(starts_ptr + level).to(tl.int64) * KEY
        for _ in range(points):
            location_x, location_y = unpack(tl.load(locations), locations_ptr.dtype.element_ty)
            # Zero for rows past the last query: they add nothing to grad_value.
            weight = tl.load(weights, live, other=0).to(tl.float32)
            x, left, right = bilinear_axis(location_x, width)
            y, top, bottom = bilinear_axis(location_y, height)
            above = level_pixel + (y * width + x)[:, None].to(tl.int64) * KEY
            below = above + width.to(tl.int64) * KEY

            # The gradient of a weight of zero is not zero: here it is the pixel that decides.
            in_left, in_right = inside(x, width), inside(x + 1, width)
            in_top, in_bottom = inside(y, height), inside(y + 1, height)
            m00, m01 = (in_top & in_left)[:, None] & used, (in_top & in_right)[:, None] & used
            m10, m11 = (in_bottom & in_left)[:, None] & used, (in_bottom & in_right)[:, None] & used
            v00 = tl.load(value_ptr + above, m00, other=0).to(tl.float32)
            v01 = tl.load(value_ptr + above + KEY, m01, other=0).to(tl.float32)
            v10 = tl.load(value_ptr + below, m10, other=0).to(tl.float32)
            v11 = tl.load(value_ptr + below + KEY, m11, other=0).to(tl.float32)

            sums = grad_value_ptr
            _add(sums + above, grad, across(weight * top * left, LANES), steps, used)
            _add(sums + above + KEY, grad, across(weight * top * right, LANES), steps, used)
            _add(sums + below, grad, across(weight * bottom * left, LANES), steps, used)
            _add(sums + below + KEY, grad, across(weight * bottom * right, LANES), steps, used)

            d00, d01 = tl.sum(v00 * grad, 1), tl.sum(v01 * grad, 1)
            d10, d11 = tl.sum(v10 * grad, 1), tl.sum(v11 * grad, 1)
            along_top = left * d00 + right * d01
            along_bottom = left * d10 + right * d11
            grad_weight = top * along_top + bottom * along_bottom
            # A location of 1 is `width` pixels; a pixel to the right moves 1 from left to right.
            grad_x = weight * width * (top * (d01 - d00) + bottom * (d11 - d10))
            grad_y = weight * height * (along_bottom - along_top)
            tl.store(grad_weights, grad_weight.to(grad_weights_ptr.dtype.element_ty), live)
            pair = pack(grad_x, grad_y, grad_locations_ptr.dtype.element_ty)
            tl.store(grad_locations, pair, live)
            locations += 1
            weights += 1
            grad_locations += 1
            grad_weights += 1


@triton.jit
def _add(pointers, grad, weight, steps, used):
    """Add grad * weight, in the type that is summed in: float32, or integers as `_steps` says."""
    term = (grad * weight * steps).to(pointers.dtype.element_ty)
    tl.atomic_add(pointers, term, (weight != 0) & used, sem="relaxed")
