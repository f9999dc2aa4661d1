"""`spatial_cross_attention` in C++, for CPU tensors: see _cpu.cpp. The same bits for any number of
threads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...common.cpu import call
from . import Inputs

_NAME = "spatial_cross_attention"


def forward(inputs: Inputs) -> Tensor:
    """See `spatial_cross_attention`."""
    return call.forward(_NAME, _with_flags(inputs), _sizes(inputs))


def backward(
    grad_out: Tensor, inputs: Inputs, wanted: Sequence[bool] = (True, True, True)
) -> tuple[Tensor | None, ...]:
    """The gradients of value, offsets and logits, None where not wanted."""
    differentiable = (inputs.value, inputs.offsets, inputs.logits)
    # That of the logits is computed from those of the weights, beside those of the offsets.
    needed = (wanted[0], True, True)
    return call.backward(
        _NAME, grad_out, _with_flags(inputs), differentiable, needed, _sizes(inputs)
    )


def _with_flags(inputs: Inputs) -> Inputs:
    return inputs._replace(visibility=inputs.visibility.to(torch.bool))


def _sizes(inputs: Inputs) -> list[int]:
    queries, _, levels, points = inputs.offsets.shape[1:5]
    heights = inputs.visibility.shape[3]
    first_item = int(inputs.first_item_visibility)
    return [*inputs.value.shape, queries, levels, points, heights, first_item]
