"""`spatial_cross_attention` in C++, for CPU tensors: see bev_attention.cpp."""

from __future__ import annotations

import torch
from torch import Tensor

from ._cpu_call import call, prepared


def forward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points_cam: Tensor,
    visibility: Tensor,
    *,
    first_item_visibility: bool = False,
) -> Tensor:
    """See `spatial_cross_attention`."""
    dtype, tensors = _inputs(
        (value, offsets, logits, reference_points_cam),
        (spatial_shapes, level_start_index),
        visibility,
    )
    batch, _, _, heads, dim = value.shape
    out = torch.empty(batch, offsets.shape[1], heads * dim, dtype=dtype)
    sizes = _sizes(value, offsets, reference_points_cam, first_item_visibility)
    call("spatial_cross_attention_forward", dtype, [*tensors, out], sizes)
    return out.to(value.dtype)


def backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points_cam: Tensor,
    visibility: Tensor,
    *,
    first_item_visibility: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `spatial_cross_attention_backward`. Bitwise the same for any number of threads."""
    dtype, tensors = _inputs(
        (value, offsets, logits, reference_points_cam),
        (spatial_shapes, level_start_index),
        visibility,
    )
    grads = [torch.empty(t.shape, dtype=dtype) for t in (value, offsets, logits)]
    sizes = _sizes(value, offsets, reference_points_cam, first_item_visibility)
    grad_out = grad_out.to(dtype).contiguous()
    call("spatial_cross_attention_backward", dtype, [grad_out, *tensors, *grads], sizes)
    return (
        grads[0].to(value.dtype),
        grads[1].to(offsets.dtype),
        grads[2].to(logits.dtype),
    )


def _inputs(
    floats: tuple[Tensor, ...], levels: tuple[Tensor, ...], visibility: Tensor
) -> tuple[torch.dtype, list[Tensor]]:
    dtype, tensors = prepared(floats, levels)
    return dtype, [*tensors, visibility.to(torch.bool).contiguous()]


def _sizes(value: Tensor, offsets: Tensor, references: Tensor, first_item: bool) -> list[int]:
    queries, _, levels, points = offsets.shape[1:5]
    return [*value.shape, queries, levels, points, references.shape[3], int(first_item)]
