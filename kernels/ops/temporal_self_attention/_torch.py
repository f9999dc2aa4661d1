"""`temporal_self_attention` in PyTorch's own operators, for any device and any head dimension.

One entry of the queue after the other through `ms_deform_attn`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...common import softmax
from ...common.dtypes import sum_dtype
from .. import ms_deform_attn
from ..ms_deform_attn import _torch as one_entry
from . import Inputs


def forward(inputs: Inputs) -> Tensor:
    """See `temporal_self_attention`."""
    dtype = sum_dtype(*inputs)
    weights = softmax.weights(inputs.offsets, inputs.logits, dtype)
    sums = torch.zeros_like(inputs.result(), dtype=dtype)
    for entry in range(inputs.offsets.shape[3]):
        sums += one_entry.forward(_entry(inputs, weights, entry, dtype))
    return sums.to(inputs.value.dtype)


def backward(
    grad_out: Tensor, inputs: Inputs, wanted: Sequence[bool] = (True, True, True)
) -> tuple[Tensor | None, ...]:
    """The gradients of value, offsets and logits, None where not wanted. As deterministic as
    `Tensor.index_add_` is."""
    value, shapes, _, offsets, logits, _ = inputs
    dtype = sum_dtype(*inputs)
    entries = offsets.shape[3]
    weights = softmax.weights(offsets, logits, dtype)
    grad_value = value.new_empty(value.shape) if wanted[0] else None
    grad_offsets = offsets.new_zeros(offsets.shape)
    grad_weights = torch.zeros_like(weights)
    for entry in range(entries):
        of_value, of_locations, of_weights = one_entry.backward(
            grad_out, _entry(inputs, weights, entry, dtype), wanted
        )
        if grad_value is not None and of_value is not None:
            grad_value[entry::entries] = of_value
        if of_locations is not None:
            grad_offsets[:, :, :, entry] = of_locations / shapes.flip(-1)[:, None]
        if of_weights is not None:
            grad_weights[:, :, :, entry] = of_weights / entries
    grad_logits = softmax.backward(grad_weights, weights).view_as(logits)
    return grad_value, grad_offsets, grad_logits.to(logits.dtype)


def _entry(
    inputs: Inputs, weights: Tensor, entry: int, dtype: torch.dtype
) -> ms_deform_attn.Inputs:
    """The samples of one entry of the queue."""
    value, shapes, starts, offsets, _, references = inputs
    entries = offsets.shape[3]
    around = references[entry::entries, :, None, :, None].to(dtype)  # (B, Q, 1, L, 1, 2)
    return ms_deform_attn.Inputs(
        value[entry::entries].to(dtype),
        shapes,
        starts,
        around + offsets[:, :, :, entry].to(dtype) / shapes.flip(-1)[:, None],
        weights[:, :, :, entry] / entries,
    )
