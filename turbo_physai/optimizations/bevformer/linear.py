"""Linear layers of the transformer that use the faster of torch's two CPU libraries."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from turbo_physai.engine.metrics import metrics
from turbo_physai.kernels import linear, onednn_pays

if TYPE_CHECKING:
    from collections.abc import Callable

    from turbo_physai.declarations import NoOptions


class Linear(nn.Linear):
    """`torch.nn.Linear`, of the same name, parameters and results up to rounding."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., C) -> (..., D)"""
        out: Tensor = linear(input, self.weight, self.bias)
        return out


def initialize(original: Callable[..., None], options: NoOptions) -> Callable[..., None]:
    """`PerceptionTransformer.__init__`, after which its `torch.nn.Linear` layers, those of encoder
    and decoder among them, are `Linear`. Where nothing is won by that, the original."""
    pays = onednn_pays()
    metrics().set(library="oneDNN" if pays else "that of torch, which is as fast on this machine")
    if not pays:
        return original

    @wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for module in self.modules():
            if type(module) is nn.Linear:
                module.__class__ = Linear

    return __init__
