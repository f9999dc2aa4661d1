"""`temporal_self_attention` in Triton.

A program owns a block of queries of one head of one batch item and loops over the queue: sums stay
in registers and are written once. Nothing is read on the host.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ...common.triton import launch
from ...common.triton.attention import (
    program_rows,
    softmax_chunk,
    softmax_statistics,
    softmax_weight,
    store_logit_gradients,
)
from ...common.triton.launch import Size
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

_SIZES = ["queue", "keys", "queries", "levels", "points"]


@triton.jit(do_not_specialize=_SIZES)
def forward_kernel(
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
            height, width, start = level_of(shapes_ptr, starts_ptr, level, KEY)
            level_pixel = first_pixel + start
            reference_x, reference_y = load_pair(
                references, query * levels + level, references_ptr.dtype.element_ty
            )
            first_x, first_y = reference_x * width - 0.5, reference_y * height - 0.5
            for _ in range(points):
                offset_x, offset_y = load_pair(
                    offsets, first_sample + sample, offsets_ptr.dtype.element_ty
                )
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
def backward_kernel(
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
    """Adds to grad_value, float32, or int64 in steps of 1 / steps when `steps_ptr` is given; not
    where its pointer is None.

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
            height, width, start = level_of(shapes_ptr, starts_ptr, level, KEY)
            level_pixel = first_pixel + start
            reference_x, reference_y = load_pair(
                references, query * levels + level, references_ptr.dtype.element_ty
            )
            first_x, first_y = reference_x * width - 0.5, reference_y * height - 0.5
            for _ in range(points):
                offset_x, offset_y = load_pair(
                    offsets, first_sample + sample, offsets_ptr.dtype.element_ty
                )
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
                store_sample_gradient(
                    grad_weights,
                    grad_offsets,
                    first_sample + sample,
                    (grad_weight, grad_x, grad_y),
                    live,
                    grad_offsets_ptr.dtype.element_ty,
                )
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


def _prepare(inputs: Inputs) -> list[Tensor]:
    """Contiguous, pairs aligned."""
    value, shapes, starts, offsets, logits, references = inputs
    return [
        value.contiguous(),
        shapes.contiguous(),
        starts.contiguous(),
        launch.aligned_pairs(offsets),
        logits.contiguous(),
        launch.aligned_pairs(references),
    ]


def _sizes(inputs: Inputs) -> tuple[int, ...]:
    _, queries, _, queue, levels, points, _ = inputs.offsets.shape
    return queue, inputs.value.shape[1], queries, levels, points


def _constants(inputs: Inputs, size: Size) -> dict[str, int | bool]:
    return {
        "CHUNK": softmax_chunk(inputs.logits.shape[4], size),
        "HEADS": inputs.value.shape[2],
    }


KERNELS = AttentionKernels(
    "temporal_self_attention", forward_kernel, backward_kernel, _prepare, _sizes, _constants
)
forward, backward = KERNELS.forward, KERNELS.backward
