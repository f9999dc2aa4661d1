"""What a declaration is offered while the module that it acts on is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from turbo_physai.engine import exchange
from turbo_physai.engine.captured import is_held_by_nobody_else
from turbo_physai.engine.objects import as_callable, load, place
from turbo_physai.engine.origins import origin, origin_of_module
from turbo_physai.engine.slot import ABSENT, Slot, find
from turbo_physai.engine.transaction import Change, ScopedChange

if TYPE_CHECKING:
    from turbo_physai.declarations import ObjectPath, Replacement
    from turbo_physai.engine.exchange import Exchange
    from turbo_physai.engine.modules import Modules
    from turbo_physai.engine.observing import Observing
    from turbo_physai.engine.records import GroupRecord, MemberRecord, Site
    from turbo_physai.engine.references import References


class ImportContext:
    """The engine as one member of a Group sees it: see `turbo_physai.declarations.Importing`."""

    def __init__(
        self,
        group: GroupRecord,
        member: MemberRecord,
        modules: Modules,
        references: References,
        observing: Observing,
    ) -> None:
        self._group = group
        self._member = member
        self._modules = modules
        self._references = references
        self._observing = observing

    @property
    def options(self) -> Any:
        return self._group.prepared.options

    @property
    def was_provided(self) -> bool:
        return self._member.was_provided

    def note(self, text: str) -> None:
        self._member.note = text

    def load(self, path: ObjectPath) -> Any:
        held = load(path)
        self._member.replacement = origin(path, held)
        return held

    def call(self, path: ObjectPath, *arguments: Any) -> Any:
        return as_callable(self.load(path))(*arguments)

    def import_module(self, name: str) -> ModuleType:
        __import__(name)
        module: ModuleType = sys.modules[name]
        self._member.replacement = origin_of_module(module)
        return module

    # Import-compatibility declarations.

    def add_name(self, name: str, value: Any) -> None:
        run = self._modules[self._member.sites[0].module or ""]
        slot = find(run.module, (name,))
        if slot.raw() is ABSENT:
            self._group.transaction.write(slot, value)
        has_ours = self._group.transaction.holds(slot)
        self.note("" if has_ours else f"not needed: it has a {name!r} of its own")

    def exchange_while_importing(self, path: ObjectPath, make: Callable[[Any], Any]) -> None:
        slot = place(path)
        original = slot.effective()
        instead = make(original)
        if instead is original:
            self.note("not needed: its factory returned the original")
            return
        self.note("")
        self._change_while_importing(slot, instead, keeps=False)

    def remove_while_importing(self, path: ObjectPath, names: Iterable[str]) -> None:
        registry = load(path)
        slots = [slot for name in names if (slot := Slot(registry, name)).raw() is not ABSENT]
        for slot in slots:
            self._change_while_importing(slot, ABSENT, keeps=True)
        self.note("" if slots else "not needed: none of the names was registered")

    def _change_while_importing(self, slot: Slot, value: Any, *, keeps: bool) -> None:
        # Remembered first: whatever interrupts the rest, it is taken back.
        self._member.scoped.append(ScopedChange(Change(slot, slot.raw(), value), keeps))
        slot.write(value)

    # Replacements.

    def make_exchange(self) -> Exchange | None:
        declared = cast("Replacement", self._member.declared)
        target = self._member.sites[0]
        slot = self._modules.slot(target)
        is_bound_there = self._group.transaction.holds(slot) is not None
        if not self._modules.is_due(target) or is_bound_there:
            return self._member.exchange

        def around(new: Any, old: Any) -> Any:
            return self._observing.around(self._group, self._member, slot, new, old)

        return exchange.make(declared, slot, self.options, around, self._observing.counting)

    def put_exchange(self, made: Exchange) -> None:
        member, transaction = self._member, self._group.transaction
        if made is not member.exchange:
            member.exchanges.append(made)
        places = [(self._modules.slot(site), site.paths[0]) for site in self._due]
        # Nobody to search for, unless a binding that was interrupted is completed: the slot then
        # holds the new object.
        first = places[0][0]
        is_alone = len(places) == 1 and not made.keeps_old and first.raw() is made.old
        is_alone = is_alone and is_held_by_nobody_else(first, known=1)
        for slot, path in places:
            exchange.put(transaction, slot, made, path)
        if not (made.is_inherited or is_alone):
            self._references.rebind(self._group, member, made)
        declared = cast("Replacement", member.declared)
        member.original = origin(declared.target, made.old)
        member.replacement = origin(declared.replacement, made.author)
        member.backend, member.note = made.backend, ""

    @property
    def _due(self) -> list[Site]:
        return [site for site in self._member.sites if self._modules.is_due(site)]
