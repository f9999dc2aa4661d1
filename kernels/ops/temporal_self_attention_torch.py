"""`temporal_self_attention` in PyTorch's own operators, for devices that have no fused kernel.

One entry of the queue after the other through `ms_deform_attn`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import ms_deform_attn_torch
from ._dispatch import sum_dtype
from .spatial_cross_attention_torch import sample_weights, softmax_backward


def forward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points: Tensor,
) -> Tensor:
    """See `temporal_self_attention`."""
    dtype = sum_dtype(value, offsets, logits, reference_points)
    batch, queries, _, entries = offsets.shape[:4]
    weights = sample_weights(offsets, logits, dtype) / entries
    heads, dim = value.shape[2:]
    out = torch.zeros(batch, queries, heads * dim, dtype=dtype, device=value.device)
    for entry in range(entries):
        out += ms_deform_attn_torch.forward(
            value[entry::entries].to(dtype),
            spatial_shapes,
            level_start_index,
            _locations(offsets, spatial_shapes, reference_points, entry, dtype),
            weights[:, :, :, entry],
        )
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
    """See `temporal_self_attention_backward`. As deterministic as `Tensor.index_add_` is."""
    dtype = sum_dtype(value, offsets, logits, reference_points)
    entries = offsets.shape[3]
    weights = sample_weights(offsets, logits, dtype)
    grad_value, grad_offsets = torch.empty_like(value), torch.empty_like(offsets)
    grad_weights = torch.empty_like(weights)
    for entry in range(entries):
        grads = ms_deform_attn_torch.backward(
            grad_out,
            value[entry::entries].to(dtype),
            spatial_shapes,
            level_start_index,
            _locations(offsets, spatial_shapes, reference_points, entry, dtype),
            weights[:, :, :, entry] / entries,
        )
        grad_value[entry::entries] = grads[0]
        grad_offsets[:, :, :, entry] = grads[1] / spatial_shapes.flip(-1)[:, None]
        grad_weights[:, :, :, entry] = grads[2] / entries
    grad_logits = softmax_backward(grad_weights, weights).view_as(logits)
    return grad_value, grad_offsets, grad_logits.to(logits.dtype)


def _locations(
    offsets: Tensor,
    spatial_shapes: Tensor,
    reference_points: Tensor,
    entry: int,
    dtype: torch.dtype,
) -> Tensor:
    """(B, Q, H, L, P, 2) in one entry of the queue."""
    around = reference_points[entry :: offsets.shape[3], :, None, :, None]  # (B, Q, 1, L, 1, 2)
    return around.to(dtype) + offsets[:, :, :, entry].to(dtype) / spatial_shapes.flip(-1)[:, None]
