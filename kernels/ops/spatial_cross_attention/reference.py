"""The definition of `spatial_cross_attention`, for float64 and for exporters; autograd
differentiates it."""

from __future__ import annotations

import torch
from torch import Tensor

from ...common.reference import samples
from . import Inputs


def forward(inputs: Inputs) -> Tensor:
    """(B, Q, H * D), computed in the dtype of the inputs, camera by camera."""
    value, shapes, starts, offsets, logits, references, visibility, first_item = inputs
    weights = logits.softmax(-1).view(offsets.shape[:-1])
    seen = visibility.ne(0).any(-1)
    count = seen.sum(0).clamp(min=1)
    if first_item:
        seen = seen[:, :1].expand_as(seen)
    height = torch.arange(offsets.shape[4], device=offsets.device) % references.shape[3]
    sizes = shapes.flip(1)[:, None]
    out = value.new_zeros(())
    for camera in range(value.shape[1]):
        around = references[camera][:, :, height][:, :, None, None]  # (B, Q, 1, 1, P, 2)
        pixels = around * sizes + offsets - 0.5
        one = samples(value[:, camera], shapes, starts, pixels, weights)
        out = out + one.where(seen[camera][:, :, None, None], 0)
    return (out / count[:, :, None, None]).flatten(2)
