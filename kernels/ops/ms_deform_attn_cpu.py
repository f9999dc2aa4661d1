"""`ms_deform_attn` in C++, for CPU tensors: see ms_deform_attn.cpp."""

from __future__ import annotations

import torch
from torch import Tensor

from ._cpu_call import call, prepared


def forward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    """See `ms_deform_attn`."""
    dtype, tensors = prepared(
        (value, sampling_locations, attention_weights), (spatial_shapes, level_start_index)
    )
    batch, _, heads, dim = value.shape
    out = torch.empty(batch, sampling_locations.shape[1], heads * dim, dtype=dtype)
    sizes = _sizes(value, sampling_locations)
    call("ms_deform_attn_forward", dtype, [*tensors, out], sizes)
    return out.to(value.dtype)


def backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `ms_deform_attn_backward`. Bitwise the same for any number of threads."""
    floats = (value, sampling_locations, attention_weights)
    dtype, tensors = prepared(floats, (spatial_shapes, level_start_index))
    grads = [torch.empty(t.shape, dtype=dtype) for t in floats]
    tensors = [grad_out.to(dtype).contiguous(), *tensors, *grads]
    call("ms_deform_attn_backward", dtype, tensors, _sizes(value, sampling_locations))
    return (
        grads[0].to(value.dtype),
        grads[1].to(sampling_locations.dtype),
        grads[2].to(attention_weights.dtype),
    )


def _sizes(value: Tensor, sampling_locations: Tensor) -> list[int]:
    queries, _, levels, points, _ = sampling_locations.shape[1:]
    return [*value.shape, queries, levels, points]
