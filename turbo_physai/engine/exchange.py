"""The exchange of one object for another: makes the new one, and puts it in a declared place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from turbo_physai.declarations import ObjectPath, Replacement
from turbo_physai.engine.adapt import adapt, choose, inner, name_like, show_signature
from turbo_physai.engine.calls import Calls
from turbo_physai.engine.objects import as_callable, call, load
from turbo_physai.engine.slot import Slot, TargetError
from turbo_physai.engine.transaction import Transaction
from turbo_physai.evidence import BackendResult


@attrs.frozen(eq=False)
class Exchange:
    """An object and the one that takes its place, both as they are stored in the target's slot.

    `author` is what the declaration names: the replacement itself, or the factory that made it;
    `backend` what serves it in this process, where the declaration asks.
    `is_inherited` says that the target's owner did not hold the old object itself, `keeps_old` that
    the new one may hold it, to call it. `calls` counts its calls, where anything does;
    `has_condition` that a runtime_condition chooses between the two.
    """

    old: Any
    new: Any
    author: Any = None
    backend: BackendResult | None = None
    is_inherited: bool = False
    keeps_old: bool = True
    calls: Calls | None = None
    has_condition: bool = False

    def answer(self, held: Any) -> Any | None:
        """What takes the place of `held` where that is the old object, however it is stored."""
        if held is self.old:
            return self.new
        return inner(self.new) if held is inner(self.old) else None

    def is_new(self, held: Any) -> bool:
        return held is self.new or held is inner(self.new)


def make(
    declared: Replacement,
    slot: Slot,
    options: Any,
    around: Callable[[Any, Any], Any],
    counting: Callable[[Any, Any], tuple[Any, Calls | None]],
) -> Exchange:
    """The new object for a target. Imports the replacement's module and calls the factory, so no
    lock may be held.

    Args:
        around: puts whoever looks at calls around the new object, given with the old one.
        counting: the same for what counts them.

    Raises:
        NotReadyError: a module that is needed is still being imported.
        TargetError: the target is missing, or the replacement does not fit it.
        Exception: whatever the replacement's module or the factory raises.
    """
    old = slot.effective()
    author = load(declared.replacement)
    new = author
    if declared.kind == "wrap":
        new = name_like(as_callable(author)(inner(old), options), old)
    condition = declared.runtime_condition
    calls: Calls | None
    if condition is not None:
        branches = calls = Calls()
        new = choose(_condition(condition), around(new, old), old, condition, branches)
        new = adapt(slot, old, new)
    else:
        new, calls = counting(around(adapt(slot, old, new), old), old)
    keeps_old = declared.kind == "wrap" or calls is not None
    if keeps_old:
        show_signature(new, old)
    backend = None if declared.backend is None else _backend(declared.backend)
    return Exchange(
        old, new, author, backend, slot.is_inherited, keeps_old, calls, condition is not None
    )


def _condition(path: ObjectPath) -> Callable[..., Any]:
    condition = call(path)
    if not callable(condition):
        raise TargetError(
            f"runtime_condition {path}: found {condition!r}, accepted is a function of the call's "
            "arguments that returns True or False"
        )
    return condition


def _backend(path: ObjectPath) -> BackendResult:
    answer = call(path)()
    if not isinstance(answer, BackendResult):
        raise TargetError(f"backend {path}: found {answer!r}; accepted: a BackendResult")
    return answer


def put(transaction: Transaction, slot: Slot, exchange: Exchange, path: str) -> None:
    """Writes the new object into one declared place. The engine's lock must be held.

    Raises:
        TargetError: the place holds neither the old object nor the new one.
    """
    held = slot.effective()
    new = exchange.answer(held)
    if new is not None:
        transaction.write(slot, new)
    elif not exchange.is_new(held):
        raise TargetError(f"{path} holds another object: {held!r} instead of {exchange.old!r}")
