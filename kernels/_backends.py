"""The backends: the table that dispatch walks and that `backends()` prints.

`TURBO_PHYSAI_KERNEL_BACKEND` names the one that every operator has to take, for tests and for
comparisons: `torch` does without the compiled library and without Triton.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final, NamedTuple

import torch
from torch import Tensor

from .common.cpu import library

VARIABLE: Final = "TURBO_PHYSAI_KERNEL_BACKEND"
_INTERPRETER: Final = "TRITON_INTERPRET"
_OLDEST_TRITON: Final = (3, 6)
"""The oldest that the kernels were compiled with."""


class Backend(NamedTuple):
    """One operator on one backend."""

    op: str
    name: str
    """"cpu" (compiled C++), "triton" (GPUs) or "torch" (any device, slower)."""
    missing: str | None
    """Why it cannot run here; None when it can."""

    def __str__(self) -> str:
        state = "available" if self.missing is None else f"missing: {self.missing}"
        return f"{self.op:<24} {self.name:<8} {state}"


class Backends(tuple[Backend, ...]):
    """All of them, one a line when printed."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))


class Kind(NamedTuple):
    """What all operators' backends of one name have in common."""

    name: str
    why_not: Callable[[], str | None]
    """Why it cannot run on this machine; None when it can."""
    takes: Callable[[Sequence[Tensor]], bool]
    """Whether it is for tensors of this device and of these dtypes."""
    fused: bool = True
    """Whether an operator may limit what it takes further."""


@cache
def triton_why_not() -> str | None:
    """Why no Triton kernel can run, or None when one can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    version = importlib.metadata.version("triton")
    if tuple(map(int, version.split(".")[:2])) < _OLDEST_TRITON:
        oldest = ".".join(map(str, _OLDEST_TRITON))
        return f"triton {version} is too old: {oldest} or newer is needed"
    if not torch.cuda.is_available() and not _interprets():
        return "torch sees no CUDA device"
    return None


def _interprets() -> bool:
    """Whether Triton's interpreter was asked for: it runs kernels on CPU tensors."""
    return _forced == "triton" and os.environ.get(_INTERPRETER) == "1"


def _is_on_cpu(tensors: Sequence[Tensor]) -> bool:
    return tensors[0].device.type == "cpu"


def _is_for_triton(tensors: Sequence[Tensor]) -> bool:
    if not tensors[0].is_cuda and not _interprets():
        return False
    return all(tensor.dtype != torch.float64 for tensor in tensors)


KINDS: Final = (
    Kind("cpu", library.why_not, _is_on_cpu),
    Kind("triton", triton_why_not, _is_for_triton),
    Kind("torch", lambda: None, lambda _: True, fused=False),
)


def _read_variable() -> str | None:
    names = [kind.name for kind in KINDS]
    name = os.environ.get(VARIABLE) or None
    if name is not None and name not in names:
        raise ValueError(f"{VARIABLE} must be one of {', '.join(names)}, not {name!r}")
    return name


_forced: str | None = _read_variable()


def choose(op: str, names: Iterable[str], tensors: Sequence[Tensor], limit: str | None) -> str:
    """The first backend of the table that takes an operator's inputs.

    Args:
        op: the operator's name.
        names: the backends that it has.
        tensors: its tensors, the one that decides the device first.
        limit: why no fused kernel of the operator takes these inputs; None when they do.

    Raises:
        RuntimeError: the backend that the variable names cannot take them.
    """
    reasons = []
    for kind in KINDS:
        if kind.name not in names or _forced not in (None, kind.name):
            continue
        if not kind.takes(tensors):
            reasons.append(f"it does not take {tensors[0].dtype} on {tensors[0].device}")
            continue
        reason = kind.why_not() or (limit if kind.fused else None)
        if reason is None:
            return kind.name
        reasons.append(reason)
        if _forced is None:
            _warn(f"{op} runs on PyTorch's own operators: {reason}")
    raise RuntimeError(f"{op} cannot run on {VARIABLE}={_forced}: {', '.join(reasons)}")


def _why_missing(kind: Kind) -> str | None:
    is_other = _forced not in (None, kind.name)
    return f"{VARIABLE}={_forced}" if is_other else kind.why_not()


@cache
def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=5)


def table(operators: dict[str, tuple[str, ...]]) -> Backends:
    """Every backend of every operator."""
    return Backends(
        Backend(op, kind.name, _why_missing(kind))
        for op, names in sorted(operators.items())
        for kind in KINDS
        if kind.name in names
    )
