"""`temporal_self_attention` in C++, for CPU tensors: see bev_attention.cpp."""

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
    reference_points: Tensor,
) -> Tensor:
    """See `temporal_self_attention`."""
    dtype, tensors = prepared(
        (value, offsets, logits, reference_points), (spatial_shapes, level_start_index)
    )
    _, _, heads, dim = value.shape
    out = torch.empty(*offsets.shape[:2], heads * dim, dtype=dtype)
    call("temporal_self_attention_forward", dtype, [*tensors, out], _sizes(value, offsets))
    return out.to(value.dtype)


def backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `temporal_self_attention_backward`. Bitwise the same for any number of threads."""
    dtype, tensors = prepared(
        (value, offsets, logits, reference_points), (spatial_shapes, level_start_index)
    )
    grads = [torch.empty(t.shape, dtype=dtype) for t in (value, offsets, logits)]
    tensors = [grad_out.to(dtype).contiguous(), *tensors, *grads]
    call("temporal_self_attention_backward", dtype, tensors, _sizes(value, offsets))
    return (
        grads[0].to(value.dtype),
        grads[1].to(offsets.dtype),
        grads[2].to(logits.dtype),
    )


def _sizes(value: Tensor, offsets: Tensor) -> list[int]:
    batch, queries, _, entries, levels, points, _ = offsets.shape
    return [batch, entries, *value.shape[1:], queries, levels, points]
