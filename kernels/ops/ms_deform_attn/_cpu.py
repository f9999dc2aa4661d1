"""`ms_deform_attn` in C++, for CPU tensors: see _cpu.cpp. The same bits on any threads."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...common.cpu import call
from . import Inputs


def forward(inputs: Inputs) -> Tensor:
    """See `ms_deform_attn`."""
    return call.forward("ms_deform_attn", inputs, _sizes(inputs))


def backward(
    grad_out: Tensor, inputs: Inputs, wanted: Sequence[bool] = (True, True, True)
) -> tuple[Tensor | None, ...]:
    """The gradients of value, locations and weights, None where not wanted."""
    differentiable = (inputs.value, inputs.sampling_locations, inputs.attention_weights)
    return call.backward("ms_deform_attn", grad_out, inputs, differentiable, wanted, _sizes(inputs))


def _sizes(inputs: Inputs) -> list[int]:
    queries, _, levels, points, _ = inputs.sampling_locations.shape[1:]
    return [*inputs.value.shape, queries, levels, points]
