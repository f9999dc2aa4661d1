"""Which backends each operator has on this machine, and why one is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

import torch

from . import _cpu_library


class Backend(NamedTuple):
    """One operator on one backend."""

    op: str
    name: str
    """"cpu" (compiled C++), "triton" (NVIDIA GPUs) or "torch" (any device, slower)."""
    missing: str | None
    """Why it cannot run here; None when it can."""

    def __str__(self) -> str:
        state = "available" if self.missing is None else f"missing: {self.missing}"
        return f"{self.op:<24} {self.name:<8} {state}"


class Backends(tuple[Backend, ...]):
    """All of them, one a line when printed."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))


@cache
def triton_why_not() -> str | None:
    """Why no Triton kernel can run, or None when one can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    return None


_WHY_NOT: Final[dict[str, Callable[[], str | None]]] = {
    "cpu": _cpu_library.why_not,
    "triton": triton_why_not,
    "torch": lambda: None,
}
_OPERATORS: Final = {
    "modulated_deform_conv2d": ("cpu", "triton", "torch"),
    "ms_deform_attn": ("cpu", "triton", "torch"),
    "point_sampling": ("cpu", "triton", "torch"),
    "spatial_cross_attention": ("cpu", "triton", "torch"),
    "temporal_self_attention": ("cpu", "triton", "torch"),
}


def backends() -> Backends:
    """Every operator's backends, the fastest first."""
    return Backends(
        Backend(op, name, _WHY_NOT[name]()) for op, names in _OPERATORS.items() for name in names
    )
