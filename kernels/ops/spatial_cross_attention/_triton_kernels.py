"""The Triton kernels of `spatial_cross_attention`.

A program owns a block of queries of one head of one batch item and loops over the cameras that see
one of them: softmax is computed once, sums stay in registers and are written once. Which cameras
those are is a bit mask, so that no loop reads visibility.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from ...common.triton.attention import (
    program_rows,
    softmax_statistics,
    softmax_weight,
    store_logit_gradients,
)
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
    unpack,
)
from ._triton_visibility import count_seeing, first_bit, masks, seeing

_SIZES = ["cameras", "batch", "keys", "queries", "levels", "points", "heights"]


@triton.jit(do_not_specialize=_SIZES)
def forward_kernel(
    out_ptr,
    value_ptr,
    shapes_ptr,
    starts_ptr,
    offsets_ptr,
    logits_ptr,
    references_ptr,
    visibility_ptr,
    cameras,
    batch,
    keys,
    queries,
    levels,
    points,
    heights,
    FIRST_ITEM: tl.constexpr,
    GROUPS: tl.constexpr,
    CAMERAS: tl.constexpr,
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
    offsets = pair_pointer(offsets_ptr) + first_row * samples
    logits = logits_ptr + first_row * samples
    first_sample = query * (HEADS * samples)
    maximum, log2_sum = softmax_statistics(logits, first_sample, samples, CHUNK)
    stride = batch.to(tl.int64) * queries * heights  # from camera to camera
    visibility = visibility_ptr + first_query.to(tl.int64) * heights
    item_visibility = visibility + item * queries * heights
    count = count_seeing(item_visibility, stride, query, cameras, heights, GROUPS, CAMERAS)
    # Divides every weight by the count.
    log2_sum += tl.log2(count)
    if not FIRST_ITEM:
        visibility = item_visibility
    total = tl.zeros(channel[0].shape, tl.float32), tl.zeros(channel[0].shape, tl.float32)
    for group in range(GROUPS):
        first = group * CAMERAS
        flags = seeing(visibility, stride, query, first, cameras, heights, CAMERAS)
        row_mask, mask = masks(flags, CAMERAS)
        for bit in range(CAMERAS):
            if ((mask >> bit) & 1) != 0:
                seen = ((row_mask >> bit) & 1) != 0
                camera = (first + bit).to(tl.int64)
                first_pixel = value_ptr + ((item * cameras + camera) * keys * KEY + head * DIM)
                references = pair_pointer(references_ptr) + camera * stride
                references += (item * queries + first_query) * heights
                sample = 0
                for level in range(levels):
                    height, width, start = level_of(shapes_ptr, starts_ptr, level, KEY)
                    level_pixel = first_pixel + start
                    pillar = 0
                    for _ in range(points):
                        reference_x, reference_y = load_pair(
                            references, query * heights + pillar, references_ptr.dtype.element_ty
                        )
                        offset_x, offset_y = load_pair(
                            offsets, first_sample + sample, offsets_ptr.dtype.element_ty
                        )
                        weight = softmax_weight(
                            tl.load(logits + (first_sample + sample)), maximum, log2_sum
                        )
                        # What the camera does not see is outside of every level.
                        x = tl.where(seen, reference_x * width + (offset_x - 0.5), -2.0)
                        y = reference_y * height + (offset_y - 0.5)
                        total = add_sample(
                            total,
                            level_pixel,
                            channel,
                            x,
                            y,
                            weight,
                            width,
                            height,
                            KEY,
                            DIM,
                            PARTS,
                        )
                        pillar = tl.where(pillar + 1 < heights, pillar + 1, 0)
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
    visibility_ptr,
    cameras,
    batch,
    keys,
    queries,
    levels,
    points,
    heights,
    FIRST_ITEM: tl.constexpr,
    GROUPS: tl.constexpr,
    CAMERAS: tl.constexpr,
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

    Stores the other gradients, and uses grad_weights (B, Q, H, L * P) float32, grad_logits itself
    where that is float32. Cameras are in the inner loop: their sums for a sample stay in registers.
    """
    KEY: tl.constexpr = HEADS * DIM
    item, head, first_query, query, live = program_rows(queries, HEADS, ROWS)
    first_row = (item * queries + first_query) * HEADS + head
    channel = channels(ROWS, LANES, PARTS, VECTOR)

    samples = levels * points
    offsets = pair_pointer(offsets_ptr) + first_row * samples
    grad_offsets = pair_pointer(grad_offsets_ptr) + first_row * samples
    logits = logits_ptr + first_row * samples
    grad_weights = grad_weights_ptr + first_row * samples
    first_sample = query * (HEADS * samples)
    maximum, log2_sum = softmax_statistics(logits, first_sample, samples, CHUNK)
    stride = batch.to(tl.int64) * queries * heights  # from camera to camera
    visibility = visibility_ptr + first_query.to(tl.int64) * heights
    item_visibility = visibility + item * queries * heights
    references = pair_pointer(references_ptr) + (item * queries + first_query) * heights
    count = count_seeing(item_visibility, stride, query, cameras, heights, GROUPS, CAMERAS)
    grad_out = grad_out_ptr + first_row * DIM + query[:, None] * KEY
    grad = load_channels(grad_out, channel, DIM, PARTS)
    grad = grad[0] / count[:, None], grad[1] / count[:, None]
    steps = 1.0 if steps_ptr is None else tl.load(steps_ptr)
    if not FIRST_ITEM:
        visibility = item_visibility
    mean = tl.zeros((ROWS,), tl.float32)  # over the weights, of their gradients
    for group in range(GROUPS):
        first = group * CAMERAS
        flags = seeing(visibility, stride, query, first, cameras, heights, CAMERAS)
        row_mask, mask = masks(flags, CAMERAS)
        row_mask = tl.where(live, row_mask, 0)
        mean = tl.zeros((ROWS,), tl.float32)
        sample = 0
        for level in range(levels):
            height, width, start = level_of(shapes_ptr, starts_ptr, level, KEY)
            level_pixel = start + head * DIM
            pillar = 0
            for _ in range(points):
                offset_x, offset_y = load_pair(
                    offsets, first_sample + sample, offsets_ptr.dtype.element_ty
                )
                weight = softmax_weight(
                    tl.load(logits + (first_sample + sample)), maximum, log2_sum
                )
                earlier = live & (group > 0)
                grad_weight = tl.load(grad_weights + (first_sample + sample), earlier, other=0.0)
                pair = tl.load(grad_offsets + (first_sample + sample), earlier, other=0)
                grad_x, grad_y = unpack(pair, grad_offsets_ptr.dtype.element_ty)
                rest = mask
                while rest != 0:
                    bit = first_bit(rest)
                    rest &= rest - 1
                    seen = ((row_mask >> bit) & 1) != 0
                    camera = (first + bit).to(tl.int64)
                    reference_x, reference_y = load_pair(
                        references + camera * stride,
                        query * heights + pillar,
                        references_ptr.dtype.element_ty,
                    )
                    # What the camera does not see is outside of every level.
                    x = tl.where(seen, reference_x * width + (offset_x - 0.5), -2.0)
                    y = reference_y * height + (offset_y - 0.5)
                    of_weight, of_x, of_y = add_sample_gradient(
                        grad_value_ptr,
                        value_ptr,
                        level_pixel + (item * cameras + camera) * keys * KEY,
                        channel,
                        x,
                        y,
                        weight,
                        width,
                        height,
                        grad,
                        steps,
                        KEY,
                        DIM,
                        PARTS,
                    )
                    grad_weight += of_weight
                    grad_x += of_x
                    grad_y += of_y
                mean += weight * grad_weight
                store_sample_gradient(
                    grad_weights,
                    grad_offsets,
                    first_sample + sample,
                    (grad_weight, grad_x, grad_y),
                    live,
                    grad_offsets_ptr.dtype.element_ty,
                )
                pillar = tl.where(pillar + 1 < heights, pillar + 1, 0)
                sample += 1
        if GROUPS > 1:
            tl.debug_barrier()  # the next group reads what other threads have stored
    store_logit_gradients(
        grad_logits_ptr + first_row * samples,
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
