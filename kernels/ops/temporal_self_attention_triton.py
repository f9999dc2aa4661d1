"""`temporal_self_attention` in Triton, for CUDA devices.

A program owns a block of queries of one head of one batch item and loops over the queue: sums stay
in registers and are written once. Nothing is read on the host.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import _triton_launch as launch
from . import _triton_sums as pixel_sums
from ._triton_attention import (
    attention_steps,
    program_rows,
    softmax_chunk,
    softmax_statistics,
    softmax_weight,
    store_logit_gradients,
    weight_gradients,
)
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

NAME = "temporal_self_attention"


def forward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points: Tensor,
) -> Tensor:
    """See `temporal_self_attention`; the floating-point dtypes are `_triton_launch.DTYPES`."""
    inputs = _Inputs(value, spatial_shapes, level_start_index, offsets, logits, reference_points)
    return _forward(inputs, None)


def backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points: Tensor,
    *,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `temporal_self_attention_backward`.

    Args:
        deterministic: give the same bits at every call. The gradient of `value` is summed in an
            order that changes from call to call; in 64-bit integers, at twice the memory, order
            does not matter. A step is the largest gradient times Q * L * P / 2**60 or less. The
            other gradients have one order always.
    """
    inputs = _Inputs(value, spatial_shapes, level_start_index, offsets, logits, reference_points)
    return _backward(grad_out, inputs, deterministic, None)


def tune(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points: Tensor,
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
    inputs = _Inputs(value, spatial_shapes, level_start_index, offsets, logits, reference_points)
    grad_out = value.new_ones(offsets.shape[0], offsets.shape[1], value.shape[2] * value.shape[3])
    runs: dict[str, Callable[[Size], object]] = {
        "forward": lambda size: _forward(inputs, size),
        "backward": lambda size: _backward(grad_out, inputs, False, size),
    }
    return launch.tune_operator(NAME, value, runs, path)


def size_for(kernel: str, value: Tensor) -> Size:
    """The size that "forward" or "backward" runs with: a measured one, else the built-in one."""
    return launch.size_for(NAME, kernel, value)


class _Inputs(NamedTuple):
    value: Tensor
    spatial_shapes: Tensor
    level_start_index: Tensor
    offsets: Tensor
    logits: Tensor
    reference_points: Tensor

    def prepared(self) -> _Inputs:
        """As the kernels address them: contiguous, pairs aligned."""
        return _Inputs(
            self.value.contiguous(),
            self.spatial_shapes.contiguous(),
            self.level_start_index.contiguous(),
            launch.aligned_pairs(self.offsets),
            self.logits.contiguous(),
            launch.aligned_pairs(self.reference_points),
        )

    def sizes(self) -> tuple[int, ...]:
        """What the kernels take as arguments, from `queue` to `points`."""
        _, queries, _, queue, levels, points, _ = self.offsets.shape
        return queue, self.value.shape[1], queries, levels, points

    def constants(self, size: Size) -> dict[str, int]:
        """What the kernels are compiled for."""
        return {
            "CHUNK": softmax_chunk(self.logits.shape[4], size),
            "HEADS": self.value.shape[2],
        }


def _forward(inputs: _Inputs, size: Size | None) -> Tensor:
    value, _, _, offsets, logits, references = inputs
    launch.check_dtypes(value, offsets, logits, references)
    batch, queries, heads = offsets.shape[:3]
    shape = (batch, queries, heads * value.shape[3])
    out = torch.empty(shape, dtype=value.dtype, device=value.device)
    if out.numel() == 0:
        return out
    size = size or size_for("forward", value)
    with launch.device_of(value):
        _forward_kernel[(batch * heads * triton.cdiv(queries, size.rows),)](
            out,
            *inputs.prepared(),
            *inputs.sizes(),
            **inputs.constants(size),
            **size.tile("forward", value),
            **size.options(),
        )
    return out


def _backward(
    grad_out: Tensor, inputs: _Inputs, deterministic: bool, size: Size | None
) -> tuple[Tensor, Tensor, Tensor]:
    value, _, _, offsets, logits, references = inputs
    launch.check_dtypes(grad_out, value, offsets, logits, references)
    batch, queries, heads = offsets.shape[:3]
    prepared = inputs.prepared()
    sums = pixel_sums.zeros(value, deterministic)
    grad_offsets = torch.empty_like(prepared.offsets)
    grad_logits = torch.empty_like(prepared.logits)
    if grad_out.numel() == 0 or logits.numel() == 0:
        return sums.to(value.dtype), grad_offsets, grad_logits
    size = size or size_for("backward", value)
    steps = None
    if deterministic:
        steps = attention_steps(grad_out, logits)
        size = launch.deterministic_size(size)
    with launch.device_of(value):
        _backward_kernel[(batch * heads * triton.cdiv(queries, size.rows),)](
            sums,
            grad_offsets,
            grad_logits,
            weight_gradients(grad_logits),
            grad_out.contiguous(),
            steps,
            *prepared,
            *inputs.sizes(),
            **inputs.constants(size),
            **size.tile("backward", value),
            **size.options(),
        )
    return pixel_sums.gradient(sums, steps, value.dtype), grad_offsets, grad_logits


_SIZES = ["queue", "keys", "queries", "levels", "points"]


@triton.jit(do_not_specialize=_SIZES)
def _forward_kernel(
    out_ptr,
    value_ptr,
    shapes_ptr,
    starts_ptr,
    offsets_ptr,
    logits_ptr,
    references_ptr,
    queue,
    keys,
    queries,
    levels,
    points,
    CHUNK: tl.constexpr,
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
    offsets = pair_pointer(offsets_ptr) + first_row * queue * samples
    logits = logits_ptr + first_row * queue * samples
    total = tl.zeros(channel[0].shape, tl.float32), tl.zeros(channel[0].shape, tl.float32)
    for entry in range(queue):
        first_sample = (query * (HEADS * queue) + entry) * samples
        maximum, log2_sum = softmax_statistics(logits, first_sample, samples, CHUNK)
        # Divides every weight by the number of entries.
        log2_sum += tl.log2(queue.to(tl.float32))
        item_entry = item * queue + entry
        first_pixel = value_ptr + (item_entry * keys * KEY + head * DIM)
        references = pair_pointer(references_ptr) + (item_entry * queries + first_query) * levels
        sample = 0
        for level in range(levels):
            height = tl.load(shapes_ptr + 2 * level).to(tl.int32)
            width = tl.load(shapes_ptr + 2 * level + 1).to(tl.int32)
            level_pixel = first_pixel + tl.load(starts_ptr + level).to(tl.int64) * KEY
            reference = tl.load(references + (query * levels + level))
            reference_x, reference_y = unpack(reference, references_ptr.dtype.element_ty)
            first_x, first_y = reference_x * width - 0.5, reference_y * height - 0.5
            for _ in range(points):
                offset = tl.load(offsets + (first_sample + sample))
                offset_x, offset_y = unpack(offset, offsets_ptr.dtype.element_ty)
                weight = softmax_weight(
                    tl.load(logits + (first_sample + sample)), maximum, log2_sum
                )
                total = add_sample(
                    total,
                    level_pixel,
                    channel,
                    first_x + offset_x,
                    first_y + offset_y,
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
def _backward_kernel(
    grad_value_ptr,
    grad_offsets_ptr,
    grad_logits_ptr,
    grad_weights_ptr,
    grad_out_ptr,
    steps_ptr,
    value_ptr,
    shapes_ptr,
    starts_ptr,
    offsets_ptr,
    logits_ptr,
    references_ptr,
    queue,
    keys,
    queries,
    levels,
    points,
    CHUNK: tl.constexpr,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    LANES: tl.constexpr,
    PARTS: tl.constexpr,
    VECTOR: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Adds to grad_value, float32, or int64 in steps of 1 / steps when `steps_ptr` is given.

    Stores the other gradients, and uses grad_weights (B, Q, H, T, L * P) float32, grad_logits
    itself where that is float32.
    """
    KEY: tl.constexpr = HEADS * DIM
    item, head, first_query, query, live = program_rows(queries, HEADS, ROWS)
    first_row = (item * queries + first_query) * HEADS + head
    channel = channels(ROWS, LANES, PARTS, VECTOR)

    samples = levels * points
    offsets = pair_pointer(offsets_ptr) + first_row * queue * samples
    grad_offsets = pair_pointer(grad_offsets_ptr) + first_row * queue * samples
    logits = logits_ptr + first_row * queue * samples
    grad_logits = grad_logits_ptr + first_row * queue * samples
    grad_weights = grad_weights_ptr + first_row * queue * samples
    grad_out = grad_out_ptr + first_row * DIM + query[:, None] * KEY
    grad = load_channels(grad_out, channel, DIM, PARTS)
    grad = grad[0] / queue.to(tl.float32), grad[1] / queue.to(tl.float32)
    steps = 1.0 if steps_ptr is None else tl.load(steps_ptr)
    for entry in range(queue):
        first_sample = (query * (HEADS * queue) + entry) * samples
        maximum, log2_sum = softmax_statistics(logits, first_sample, samples, CHUNK)
        item_entry = item * queue + entry
        first_pixel = item_entry * keys * KEY + head * DIM
        references = pair_pointer(references_ptr) + (item_entry * queries + first_query) * levels
        mean = tl.zeros((ROWS,), tl.float32)  # over the weights, of their gradients
        sample = 0
        for level in range(levels):
            height = tl.load(shapes_ptr + 2 * level).to(tl.int32)
            width = tl.load(shapes_ptr + 2 * level + 1).to(tl.int32)
            level_pixel = first_pixel + tl.load(starts_ptr + level).to(tl.int64) * KEY
            reference = tl.load(references + (query * levels + level))
            reference_x, reference_y = unpack(reference, references_ptr.dtype.element_ty)
            first_x, first_y = reference_x * width - 0.5, reference_y * height - 0.5
            for _ in range(points):
                offset = tl.load(offsets + (first_sample + sample))
                offset_x, offset_y = unpack(offset, offsets_ptr.dtype.element_ty)
                weight = softmax_weight(
                    tl.load(logits + (first_sample + sample)), maximum, log2_sum
                )
                # Rows past the last query add nothing to grad_value.
                weight = tl.where(live, weight, 0.0)
                grad_weight, grad_x, grad_y = add_sample_gradient(
                    grad_value_ptr,
                    value_ptr,
                    level_pixel,
                    channel,
                    first_x + offset_x,
                    first_y + offset_y,
                    weight,
                    width,
                    height,
                    grad,
                    steps,
                    KEY,
                    DIM,
                    PARTS,
                )
                mean += weight * grad_weight
                tl.store(grad_weights + (first_sample + sample), grad_weight, live)
                pair = pack(weight * grad_x, weight * grad_y, grad_offsets_ptr.dtype.element_ty)
                tl.store(grad_offsets + (first_sample + sample), pair, live)
                sample += 1
        store_logit_gradients(
            grad_logits,
            grad_weights,
            logits,
            first_sample,
            maximum,
            log2_sum,
            mean,
            live,
            samples,
            CHUNK,
        )
