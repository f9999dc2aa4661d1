"""What is known of the calls of a Replacement, and what tells it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any, Final

import attrs

from turbo_physai.engine.plain import shown

_ARGUMENTS: Final = 12


@attrs.define(eq=False)
class Calls:
    """The calls of one new object; a count that threads lose is lost.

    Calls inside `torch.compile` are not counted, since code that is compiled runs no Python; that
    there are such calls is noted while they are traced.

    Attributes:
        replacement: how many calls ran the replacement.
        original: how many a runtime_condition sent to the original.
        first_original: the arguments of the first of those.
        is_compiled: whether a caller was compiled.
    """

    replacement: int = 0
    original: int = 0
    first_original: str = ""
    is_compiled: bool = False

    def note_compiled(self) -> None:
        self.is_compiled = True

    def to_original(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not self.original:
            self.first_original = described(lambda: named_arguments(function, args, kwargs))
        self.original += 1


@attrs.define(eq=False)
class Verification:
    """Calls of a Replacement that were compared with the original.

    Attributes:
        calls: how many were compared.
        with_gradients: how many of them with their gradients.
        errors: the worst absolute and relative error of each output, change in place and gradient.
        mismatch: what differed, as text, and with it the Group was rolled back.
        inputs: the arguments of the call in which it did.
        saved: the file with these arguments, where that was asked for.
        skipped: why calls were not compared, the first reason.
    """

    calls: int = 0
    with_gradients: int = 0
    errors: dict[str, tuple[float, float]] = attrs.field(factory=dict)
    mismatch: str = ""
    inputs: str = ""
    saved: str | None = None
    skipped: str = ""

    def skip(self, reason: str) -> None:
        self.skipped = self.skipped or reason


def compiling(tell: Callable[[], None]) -> tuple[Callable[[], bool], Callable[[], bool]]:
    """Two functions for a wrapper that `torch.compile` may trace: whether it does so now, and one
    that calls `tell` then. A counter must not be traced: its value would be a guard, and each call
    a compilation."""

    def note() -> bool:
        tell()
        return True

    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    # Runs while the call is traced, and never in what is compiled.
    as_constant = getattr(compiler, "assume_constant_result", None)
    if as_constant is None:  # torch comes later, or never
        return _is_compiling, lambda: True
    return getattr(compiler, "is_compiling", _is_compiling), as_constant(note)


def _is_compiling() -> bool:
    # torch lacks the name while it is being imported.
    torch = sys.modules.get("torch")
    compiler = None if torch is None else getattr(torch, "compiler", None)
    return compiler is not None and bool(compiler.is_compiling())


def described(named: Callable[[], Mapping[str, Any]]) -> str:
    """The arguments of a call, which `named` gives by their names: dtype and shape of arrays and
    tensors, other values briefly. Raises no Exception."""
    try:
        given = list(named().items())
        texts = [f"{name} {_described(value)}" for name, value in given[:_ARGUMENTS]]
        return ", ".join(texts + ["..."] * (len(given) > _ARGUMENTS))
    except Exception as error:
        return f"<{type(error).__name__} when the arguments were read>"


def named_arguments(
    function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments by the names of the parameters; by their positions where there are none."""
    return dict(_named(function, args, kwargs))


def _named(
    function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError):
        yield from ((f"argument {i}", value) for i, value in enumerate(args))
        yield from kwargs.items()
        return
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((f"{name}[{i}]", each) for i, each in enumerate(value))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        else:
            yield name, value


def _described(value: Any, depth: int = 2) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None and not isinstance(value, type):
        return f"{str(dtype).removeprefix('torch.')} {tuple(shape)}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return shown(value)[:40]
    if isinstance(value, (list, tuple)) and depth:
        inside = ", ".join(_described(each, depth - 1) for each in value[:4])
        return f"{type(value).__name__} of {len(value)}: [{inside}]"
    if isinstance(value, FunctionType):
        return value.__qualname__
    return type(value).__qualname__
