"""The writes of one Group: each remembered raw, verified, and taken back in reverse.

An interrupt may arrive between any two steps, and a fork may copy any state between them. So a
change is remembered before it is made and forgotten after it was taken back; doing either again is
harmless.
"""

from __future__ import annotations

from typing import Any

import attrs

from turbo_physai.engine.plain import shown, text
from turbo_physai.engine.slot import ABSENT, Slot, describe


class RestoreError(Exception):
    """A slot could not be given back what it held."""


@attrs.frozen(eq=False)
class Change:
    """One slot, what it held (ABSENT if nothing) and what it holds now.

    `captured` marks a slot that was not declared: what its own module puts there later is none of
    our business.
    """

    slot: Slot
    before: Any
    after: Any
    captured: bool = False

    def is_at(self, slot: Slot) -> bool:
        return self.slot.owner is slot.owner and self.slot.name == slot.name


@attrs.frozen(eq=False)
class ScopedChange:
    """A change that lasts until the body of a module has run.

    `keeps` says that what the module itself puts there in the meantime stays.
    """

    change: Change
    keeps: bool = False

    def end(self, transaction: Transaction, *, is_open: bool) -> None:
        """Takes it back. Ending it twice is harmless.

        Args:
            transaction: of the Group, which remembers what stays.
            is_open: whether the Group may still change anything.
        """
        change = self.change
        held = change.slot.raw()
        if held is change.after or (self.keeps and not is_open):
            change.slot.write(change.before)
        elif self.keeps and held is not change.before:
            transaction.note(change.slot, held, change.before)


class Transaction:
    """Changes that are made one by one, at any time, and undone together."""

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._failures: list[str] = []

    def __bool__(self) -> bool:
        """Whether there is anything to take back."""
        return bool(self._changes)

    def holds(self, slot: Slot) -> Change | None:
        """The change by which `slot` holds what it holds now; None if that is not ours."""
        held = slot.raw()
        found = (c for c in reversed(self._changes) if c.is_at(slot) and c.after is held)
        return next(found, None)

    def originals(self, owner: object) -> dict[str, Any]:
        """What the slots of an owner held before the changes, by name; ABSENT if nothing."""
        return {c.slot.name: c.before for c in reversed(self._changes) if c.slot.owner is owner}

    def write(self, slot: Slot, value: Any, *, captured: bool = False) -> None:
        """Writes `value` and verifies it by identity.

        Raises:
            TypeError, AttributeError: the owner takes no such change.
            RestoreError: the owner took it but shows something else.
        """
        before = slot.raw()
        self.forget(slot)
        self._changes.append(Change(slot, before, value, captured))
        slot.write(value)
        if slot.raw() is not value:
            raise RestoreError(f"{describe(slot.owner)} does not keep what is put at {slot.name!r}")

    def forget(self, slot: Slot) -> None:
        """Forgets what was overwritten in `slot`: a module that runs again puts a new original over
        our object, and there is nothing left to take back."""
        held = slot.raw()
        self._changes = [c for c in self._changes if not c.is_at(slot) or c.after is held]

    def note(self, slot: Slot, after: Any, before: Any = ABSENT) -> None:
        """Remembers a change that somebody else makes on our behalf."""
        self._changes.append(Change(slot, before, after, captured=True))

    def undo(self) -> None:
        """Takes everything back, newest first.

        Raises:
            RestoreError: naming each slot that does not hold what it held, after all were tried.
        """
        while self._changes:
            change = self._changes[-1]
            try:
                _restore(change)
            except Exception as error:
                where = f"{change.slot.name!r} of {describe(change.slot.owner)}"
                self._failures.append(f"{where} {text(error)}")
            self._changes.pop()
        if self._failures:
            raise RestoreError("; ".join(self._failures))


def _restore(change: Change) -> None:
    held = change.slot.raw()
    if held is change.before or (change.captured and held is not change.after):
        return
    if held is not change.after:
        raise RestoreError(f"holds {shown(held)}, which somebody else put there")
    change.slot.write(change.before)
    if change.slot.raw() is not change.before:
        raise RestoreError(f"does not take back {shown(change.before)}")
