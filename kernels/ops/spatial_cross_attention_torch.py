"""`spatial_cross_attention` in PyTorch's own operators, for devices that have no fused kernel.

One camera after the other through `ms_deform_attn`, over all queries: the samples of those that the
camera does not see are put out of the image, so no list has to be read from the device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from . import ms_deform_attn_torch
from ._dispatch import sum_dtype


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
    dtype = sum_dtype(value, offsets, logits, reference_points_cam)
    share, seen = _seen(visibility, first_item_visibility, dtype)
    weights = sample_weights(offsets, logits, dtype) * share
    batch, cameras, _, heads, dim = value.shape
    out = torch.zeros(batch, offsets.shape[1], heads * dim, dtype=dtype, device=value.device)
    for camera in range(cameras):
        locations = _locations(
            offsets.to(dtype), spatial_shapes, reference_points_cam[camera].to(dtype), seen[camera]
        )
        out += ms_deform_attn_torch.forward(
            value[:, camera].to(dtype), spatial_shapes, level_start_index, locations, weights
        )
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
    """See `spatial_cross_attention_backward`. As deterministic as `Tensor.index_add_` is."""
    dtype = sum_dtype(value, offsets, logits, reference_points_cam)
    share, seen = _seen(visibility, first_item_visibility, dtype)
    weights = sample_weights(offsets, logits, dtype)
    grad_value = torch.empty_like(value)
    grad_locations, grad_weights = torch.zeros_like(offsets, dtype=dtype), torch.zeros_like(weights)
    for camera in range(value.shape[1]):
        locations = _locations(
            offsets.to(dtype), spatial_shapes, reference_points_cam[camera].to(dtype), seen[camera]
        )
        maps = value[:, camera].to(dtype)
        grads = ms_deform_attn_torch.backward(
            grad_out, maps, spatial_shapes, level_start_index, locations, weights * share
        )
        grad_value[:, camera] = grads[0]
        grad_locations += grads[1]
        grad_weights += grads[2]
    return (
        grad_value,
        (grad_locations / spatial_shapes.flip(-1)[:, None]).to(offsets.dtype),
        softmax_backward(grad_weights * share, weights).view_as(logits).to(logits.dtype),
    )


def sample_weights(offsets: Tensor, logits: Tensor, dtype: torch.dtype) -> Tensor:
    """The softmax of the logits (..., L * P), as the offsets lie: (..., L, P)"""
    return logits.to(dtype).softmax(-1).view(offsets.shape[:-1])


def softmax_backward(grad_weights: Tensor, weights: Tensor) -> Tensor:
    """The gradient of the logits whose softmax over the last two dimensions `weights` is."""
    product = grad_weights * weights
    return product - weights * product.sum((-2, -1), keepdim=True)


class _Seen(NamedTuple):
    share: Tensor  # (B, Q, 1, 1, 1): one over the number of cameras that see the query
    cameras: Tensor  # (N, B, Q) bool: whether to sum over the camera


def _seen(visibility: Tensor, first_item_visibility: bool, dtype: torch.dtype) -> _Seen:
    seen = visibility.ne(0).any(-1)
    share = 1 / seen.sum(0).clamp(min=1).to(dtype)
    if first_item_visibility:
        seen = seen[:, :1].expand_as(seen)
    return _Seen(share[..., None, None, None], seen)


def _locations(
    offsets: Tensor, spatial_shapes: Tensor, reference_points: Tensor, seen: Tensor
) -> Tensor:
    """(B, Q, H, L, P, 2) in one camera, infinite for the queries that it does not see."""
    heights = reference_points.shape[2]
    height = torch.arange(offsets.shape[4], device=offsets.device) % heights
    around = reference_points[:, :, height][:, :, None, None]  # (B, Q, 1, 1, P, 2)
    locations = around + offsets / spatial_shapes.flip(-1)[:, None]
    return locations.masked_fill(~seen[..., None, None, None, None], torch.inf)
