"""Binds one member: makes the new object for a target, and puts it in every declared place."""

from __future__ import annotations

from collections.abc import Container, Iterator
from types import FunctionType
from typing import Any

import attrs

from turbo_physai.declarations import Replacement
from turbo_physai.declarations.names import ObjectPath
from turbo_physai.engine.adapt import adapt, choose, inner, name_like
from turbo_physai.engine.captured import search
from turbo_physai.engine.objects import as_callable, call, has_own_place, load
from turbo_physai.engine.slot import Slot, TargetError
from turbo_physai.engine.state import MemberBinding
from turbo_physai.engine.transaction import Transaction
from turbo_physai.evidence import BackendResult, examine
from turbo_physai.evidence.definitions import Definition


@attrs.frozen(eq=False)
class Exchange:
    """An object and the one that takes its place, both as they are stored in the target's slot.

    `author` is what the declaration names: the replacement itself, or the factory that made it;
    `backend` what serves it in this process, where the declaration asks.
    `is_inherited` says that the target's owner did not hold the old object itself.
    """

    old: Any
    new: Any
    author: Any = None
    backend: BackendResult | None = None
    is_inherited: bool = False

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
    new = author
    if declared.kind == "wrap":
        new = name_like(as_callable(author)(inner(old), options), old)
    if declared.runtime_condition is not None:
        condition = call(declared.runtime_condition)
        if not callable(condition):
            raise TargetError(
                f"runtime_condition {declared.runtime_condition}: found {condition!r}, accepted is "
                "a function of the call's arguments that returns True or False"
            )
        new = choose(condition, new, old, declared.runtime_condition)
    backend = None if declared.backend is None else _backend(declared.backend)
    return Exchange(old, adapt(slot, old, new), author, backend, slot.is_inherited)


def _backend(path: str) -> BackendResult:
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


def rebind(
    transaction: Transaction,
    member: MemberBinding,
    exchange: Exchange,
    home: str,
    done: Container[str],
    declared: Container[str],
    only: Container[str] | None = None,
) -> set[str]:
    """Finds who captured the old object and changes what can be changed; notes it in the report.

    Args:
        home: the target's module. An object that was defined elsewhere is not chased: others hold
            it for reasons of their own, so they are only named.
        done: modules whose body has ended.
        declared: the paths that are targets themselves.
        only: the modules to look into; all of them if None.

    Returns:
        The modules that are still being imported and have to be asked again.
    """
    own = _keeps_the_original(member.declared)
    allowed = (exchange.new, inner(exchange.new), exchange.old)
    unfinished: set[str] = set()
    for old in _sought(exchange):
        defined_in = getattr(inner(old), "__module__", home)
        holders = search(old, done, own, only, allowed)
        for path, slot in holders.slots:
            if path in declared or path == f"{defined_in}.{getattr(old, '__qualname__', '')}":
                continue
            if defined_in == home:
                _add(member.execution.captured, path)
                transaction.write(slot, exchange.answer(old), captured=True)
            else:
                _add(member.execution.left, path)
        _add(member.execution.left, *holders.fixed)
        unfinished |= holders.unfinished
    return unfinished


def take_back(
    member: MemberBinding,
    exchange: Exchange,
    done: Container[str],
    only: Container[str] | None = None,
) -> set[str]:
    """After a rollback: gives those who imported the new object from the target's place the old
    one, and names in the report who keeps it. Arguments and result are those of `rebind`."""
    own = _keeps_the_original(member.declared)
    back, target = Exchange(exchange.new, exchange.old), _source_of(member.declared.target)
    unfinished: set[str] = set()
    for new in _sought(back):
        holders = search(new, done, own, only)
        for path, slot in holders.slots:
            # One that has a place of its own may have been imported from there as well.
            source = _source_of(path)
            if not has_own_place(new) or (source is not None and source == target):
                slot.write(back.answer(new))
            elif source is None:
                holders.fixed.append(path)
        _add(member.execution.left, *holders.fixed)
        unfinished |= holders.unfinished
    return unfinished


def _add(names: list[str], *more: str) -> None:
    """Adds what is not there yet: a search that was interrupted is repeated."""
    names += [name for name in more if name not in names]


def _sought(exchange: Exchange) -> Iterator[Any]:
    """The objects to look for: not values such as None, which everyone holds."""
    kinds = (FunctionType, type, staticmethod, classmethod, property)
    if isinstance(exchange.old, kinds):
        yield exchange.old
    if inner(exchange.old) is not exchange.old and isinstance(inner(exchange.old), kinds):
        yield inner(exchange.old)


def _source_of(path: str) -> tuple[str | None, int] | None:
    """File and line of the definition at `path`, through re-exports; None if it does not tell."""
    source = examine.read(ObjectPath.parse(path))
    return (source.file, source.found.line) if isinstance(source.found, Definition) else None


def _keeps_the_original(declared: Replacement) -> frozenset[str]:
    """The modules of a Replacement keep their own view of the original."""
    return frozenset(name for path in declared.uses for name in ObjectPath.parse(path).modules)
