"""The definition of `temporal_self_attention`, for float64 and for exporters; autograd
differentiates it."""

from __future__ import annotations

from torch import Tensor

from ...common.reference import samples
from . import Inputs


def forward(inputs: Inputs) -> Tensor:
    """(B, Q, H * D), computed in the dtype of the inputs, entry by entry."""
    value, shapes, starts, offsets, logits, references = inputs
    weights = logits.softmax(-1).view(offsets.shape[:-1])
    entries = offsets.shape[3]
    out = value.new_zeros(())
    for entry in range(entries):
        around = references[entry::entries, :, None, :, None]  # (B, Q, 1, L, 1, 2)
        pixels = around * shapes.flip(1)[:, None] + offsets[:, :, :, entry] - 0.5
        rows = value[entry::entries]
        out = out + samples(rows, shapes, starts, pixels, weights[:, :, :, entry])
    return (out / entries).flatten(2)
