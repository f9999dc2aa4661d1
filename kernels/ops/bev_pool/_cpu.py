"""`bev_pool` in C++, for CPU tensors: see _cpu.cpp. The same bits on any threads."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...common.cpu import call
from . import Inputs


def forward(inputs: Inputs) -> Tensor:
    """See `bev_pool`."""
    return call.forward("bev_pool", inputs, _sizes(inputs))


def backward(
    grad_out: Tensor, inputs: Inputs, wanted: Sequence[bool] = (True,)
) -> tuple[Tensor | None, ...]:
    """The gradient of `x`."""
    return call.backward("bev_pool", grad_out, inputs, (inputs.x,), wanted, _sizes(inputs))


def _sizes(inputs: Inputs) -> list[int]:
    return [*inputs.x.shape, inputs.interval_starts.shape[0], *inputs.grid]
