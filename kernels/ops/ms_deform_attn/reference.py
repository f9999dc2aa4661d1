"""The definition of `ms_deform_attn`, for float64 and for exporters; autograd differentiates it."""

from __future__ import annotations

from torch import Tensor

from ...common.reference import samples
from . import Inputs


def forward(inputs: Inputs) -> Tensor:
    """(B, Q, H * D), computed in the dtype of the inputs."""
    value, shapes, starts, locations, weights = inputs
    pixels = locations * shapes.flip(1)[:, None] - 0.5
    return samples(value, shapes, starts, pixels, weights).flatten(2)
