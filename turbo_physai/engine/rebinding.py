"""Changes the references to an object that were captured before it was exchanged, and takes them
back."""

from __future__ import annotations

from collections.abc import Container, Iterator
from types import FunctionType
from typing import Any

from turbo_physai.declarations import Declaration, ObjectPath
from turbo_physai.engine.adapt import inner
from turbo_physai.engine.captured import search
from turbo_physai.engine.exchange import Exchange
from turbo_physai.engine.objects import has_own_place
from turbo_physai.engine.records import MemberRecord
from turbo_physai.engine.transaction import Transaction
from turbo_physai.evidence import examine
from turbo_physai.evidence.definitions import Definition


def rebind(
    transaction: Transaction,
    member: MemberRecord,
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
                _add(member.captured, path)
                transaction.write(slot, exchange.answer(old), captured=True)
            else:
                _add(member.left, path)
        _add(member.left, *holders.fixed)
        unfinished |= holders.unfinished
    return unfinished


def take_back(
    member: MemberRecord,
    exchange: Exchange,
    done: Container[str],
    only: Container[str] | None = None,
) -> set[str]:
    """After a rollback: gives those who imported the new object from the target's place the old
    one, and names in the report who keeps it. Arguments and result are those of `rebind`."""
    own = _keeps_the_original(member.declared)
    back, target = Exchange(exchange.new, exchange.old), _source_of(member.sites[0].path or "")
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
        _add(member.left, *holders.fixed)
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
    source = examine.read(ObjectPath(path))
    return (source.file, source.found.line) if isinstance(source.found, Definition) else None


def _keeps_the_original(declared: Declaration) -> frozenset[str]:
    """The modules of a Replacement keep their own view of the original."""
    return frozenset(name for path in declared.uses for name in path.modules)
