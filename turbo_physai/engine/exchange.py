"""The exchange of one object for another: makes the new one, and puts it in a declared place."""

from __future__ import annotations

from typing import Any

import attrs

from turbo_physai.declarations import ObjectPath, Replacement
from turbo_physai.engine.adapt import Branches, adapt, choose, inner, name_like, show_signature
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
    the new one may hold it, to call it. `branches` counts the calls of a runtime_condition.
    """

    old: Any
    new: Any
    author: Any = None
    backend: BackendResult | None = None
    is_inherited: bool = False
    keeps_old: bool = True
    branches: Branches | None = None

    def answer(self, held: Any) -> Any | None:
        """What takes the place of `held` where that is the old object, however it is stored."""
        if held is self.old:
            return self.new
        return inner(self.new) if held is inner(self.old) else None

    def is_new(self, held: Any) -> bool:
        return held is self.new or held is inner(self.new)


def make(declared: Replacement, slot: Slot, options: Any) -> Exchange:
    """The new object for a target. Imports the replacement's module and calls the factory, so no
    lock may be held.

    Raises:
        NotReadyError: a module that is needed is still being imported.
        TargetError: the target is missing, or the replacement does not fit it.
        Exception: whatever the replacement's module or the factory raises.
    """
    old = slot.effective()
    author = load(declared.replacement)
    new, branches = author, None
    if declared.kind == "wrap":
        new = name_like(as_callable(author)(inner(old), options), old)
    if declared.runtime_condition is not None:
        condition = call(declared.runtime_condition)
        if not callable(condition):
            raise TargetError(
                f"runtime_condition {declared.runtime_condition}: found {condition!r}, accepted is "
                "a function of the call's arguments that returns True or False"
            )
        branches = Branches()
        new = choose(condition, new, old, declared.runtime_condition, branches)
    new = adapt(slot, old, new)
    keeps_old = declared.kind == "wrap" or declared.runtime_condition is not None
    if keeps_old:
        show_signature(new, old)
    backend = None if declared.backend is None else _backend(declared.backend)
    return Exchange(old, new, author, backend, slot.is_inherited, keeps_old, branches)


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
