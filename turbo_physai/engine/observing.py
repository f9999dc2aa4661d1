"""The calls of Replacements: counted where that costs no frame of its own or was asked for, and
offered to whoever wants to look at them while they run."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from turbo_physai.engine.calls import Calls, Verification, compiling

if TYPE_CHECKING:
    from turbo_physai.engine.records import GroupRecord, MemberRecord
    from turbo_physai.engine.slot import Slot


@attrs.frozen(eq=False)
class Watched:
    """One Replacement whose calls are offered to a `CallObserver`.

    Attributes:
        group, member: its records.
        slot: where it stands.
        replacement, original: both, as functions of the call's arguments.
        fail: rolls the Group back, for the reason that an exception gives.
    """

    group: GroupRecord
    member: MemberRecord
    slot: Slot
    replacement: Callable[..., Any]
    original: Callable[..., Any]
    fail: Callable[[BaseException], None]


class CallObserver(Protocol):
    """Looks at calls while they run."""

    def around(self, watched: Watched) -> Callable[..., Any]:
        """What is to be called in place of the replacement; that itself, to let it alone."""


@attrs.frozen(eq=False)
class Observing:
    """What is done about the calls of the Replacements of one run.

    Attributes:
        counts: whether they are counted everywhere, at the cost of a frame.
        observer: who looks at them.
        fail: ends a Group for an error of one of its members.
    """

    counts: bool = False
    observer: CallObserver | None = None
    fail: Callable[[GroupRecord, MemberRecord, BaseException], None] | None = None

    def around(
        self, group: GroupRecord, member: MemberRecord, slot: Slot, new: Any, old: Any
    ) -> Any:
        """`new`, as a slot stores it, with the observer around it."""
        if self.observer is None or self.fail is None:
            return new
        run_new, run_old = _function(new), _function(old)
        if run_new is None or run_old is None:
            member.verification = Verification(skipped="a class or value: it has no call")
            return new
        fail = self.fail
        watched = Watched(
            group, member, slot, run_new, run_old, lambda error: fail(group, member, error)
        )
        run = self.observer.around(watched)
        return new if run is run_new else _stored_like(new, _named_like(run, run_new, run_old))

    def counting(self, new: Any, old: Any) -> tuple[Any, Calls | None]:
        """`new`, as a slot stores it, with its calls counted; None where nothing counts them."""
        run = _function(new) if self.counts or self.observer is not None else None
        if run is None:
            return new, None
        calls = Calls()
        counted = _named_like(_counted(run, calls), run, _function(old))
        return _stored_like(new, counted), calls


def _counted(run: Callable[..., Any], calls: Calls) -> Callable[..., Any]:
    is_compiling, note = compiling(calls.note_compiled)

    def counted(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            note()
        else:
            calls.replacement += 1
        return run(*args, **kwargs)

    return counted


def _function(stored: Any) -> Callable[..., Any] | None:
    """What is called where a slot holds `stored`; None where that is no function."""
    if isinstance(stored, property):
        return stored.fget
    if isinstance(stored, (staticmethod, classmethod, MethodType)):
        return _function(stored.__func__)
    is_function = callable(stored) and not isinstance(stored, type)
    return stored if is_function else None


def _stored_like(new: Any, function: Callable[..., Any]) -> Any:
    """`function` in the form in which `new` is stored."""
    if isinstance(new, property):
        return type(new)(function, new.fset, new.fdel, new.__doc__)
    if isinstance(new, (staticmethod, classmethod)):
        return type(new)(function)
    return MethodType(function, new.__self__) if isinstance(new, MethodType) else function


def _named_like(function: Any, new: Any, old: Any) -> Any:
    """Gives a wrapper the looks of `new`, and the name of `old`, by which it is pickled."""
    wraps(new)(function)
    for attribute in ("__module__", "__name__", "__qualname__"):
        if isinstance(name := getattr(old, attribute, None), str):
            setattr(function, attribute, name)
    return function
