"""`temporal_self_attention` in C++, for CPU tensors: see _cpu.cpp. The same bits for any number of
threads."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...common.cpu import call
from . import Inputs

_NAME = "temporal_self_attention"


def forward(inputs: Inputs) -> Tensor:
    """See `temporal_self_attention`."""
    return call.forward(_NAME, inputs, _sizes(inputs))


def backward(
    grad_out: Tensor, inputs: Inputs, wanted: Sequence[bool] = (True, True, True)
) -> tuple[Tensor | None, ...]:
    """The gradients of value, offsets and logits, None where not wanted."""
    differentiable = (inputs.value, inputs.offsets, inputs.logits)
    # That of the logits is computed from those of the weights, beside those of the offsets.
    needed = (wanted[0], True, True)
    return call.backward(_NAME, grad_out, inputs, differentiable, needed, _sizes(inputs))


def _sizes(inputs: Inputs) -> list[int]:
    batch, queries, _, entries, levels, points, _ = inputs.offsets.shape
    return [batch, entries, *inputs.value.shape[1:], queries, levels, points]
