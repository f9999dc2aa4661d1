"""The engine: follows each watched module through its import and binds what was declared for it.

One lock, that of the records, guards states and slots. It is never held while a module body, a
replacement's module or a wrapper factory runs: those import, and so take locks of the import
system. A member is claimed under the lock, made without it, and put in place under it again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from turbo_physai.declarations import ObjectPath
from turbo_physai.engine.arrivals import Arrivals
from turbo_physai.engine.checking import Checking
from turbo_physai.engine.context import ImportContext
from turbo_physai.engine.finder import WatchingFinder
from turbo_physai.engine.import_state import is_unfinished
from turbo_physai.engine.metrics import RecordedMetrics, collecting
from turbo_physai.engine.modules import Modules
from turbo_physai.engine.objects import NotReadyError
from turbo_physai.engine.observing import Observing
from turbo_physai.engine.provided import record_provided
from turbo_physai.engine.records import GroupState, MemberState, Origin
from turbo_physai.engine.references import References
from turbo_physai.engine.scopes import Scopes
from turbo_physai.engine.slot import TargetError
from turbo_physai.engine.transitions import Transitions
from turbo_physai.engine.unbound import why_unbound
from turbo_physai.errors import OptimizationRollbackError

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import FrameType, ModuleType

    from turbo_physai.engine.listener import Listener
    from turbo_physai.engine.records import GroupRecord, MemberRecord, Records


class Engine:
    """Binds the Groups of the records, from `start` to `close`."""

    def __init__(
        self, records: Records, listener: Listener, observing: Observing | None = None
    ) -> None:
        self._records = records
        self._listener = listener
        self._started = time.perf_counter()
        self._observing = attrs.evolve(observing or Observing(), fail=self._fail)
        self._order = {id_: i for i, id_ in enumerate(records.groups)}
        # Groups of which a member may be due, until none is.
        self._due: dict[str, GroupRecord] = {}
        self._members: dict[str, list[tuple[GroupRecord, MemberRecord]]] = {}
        declared: set[str] = set()
        sources: set[str] = set()
        for group in records.groups.values():
            for member in group.members if group.state.is_open else ():
                for name in member.declared.modules:
                    self._members.setdefault(name, []).append((group, member))
                declared.update(ObjectPath(path).dotted for path in member.declared.paths)
                # Modules of replacements are watched too: one that is half-imported when it is
                # needed is asked again as soon as it is complete.
                sources.update(name for path in member.declared.uses[:1] for name in path.modules)
        self._modules = Modules(frozenset(self._members), self._has_run)
        self._arrivals = Arrivals(records, self._members, self._modules, self, self._settle)
        self._references = References(records, self._modules, declared, self._arrivals.follow)
        self._transitions = Transitions(
            records, listener, self._references.take_back, self._has_applied
        )
        self._checking = Checking(records, self._transitions)
        self._scopes = Scopes(self._members, self._modules, self._context, self._transitions.fail)
        self.finder = WatchingFinder(self._members.keys() | sources, self)

    def start(self) -> None:
        """Begins to watch, and binds what can be bound in modules that were imported before."""
        os.register_at_fork(after_in_child=self._after_fork)
        self._transitions.abandon_dependents()
        self.finder.install()
        self._settle()
        self._arrivals.has_started = True

    def close(self) -> None:
        """Takes note that the process ends: what is pending now was never completed."""
        self._arrivals.adopt(self.finder)
        self._transitions.complete()
        self._transitions.update(self._due.values())

        def why_late(name: str) -> str:
            return self._arrivals.why_late(name, self.finder)

        with self._records.lock:
            groups = [g for g in self._records.groups.values() if g.state is GroupState.PENDING]
            reasons = {group.id: why_unbound(group, self._modules, why_late) for group in groups}
            for group in groups:
                if group.prepared.entry.optional and not self._has_met(group):
                    self._transitions.leave_out(group, f"optional, and {reasons[group.id]}")
            for group in groups:
                self._transitions.abandon(group, reasons[group.id])
                self._transitions.abandon_dependents()
            self._records.note_calls()
        self._listener.changed(settled=True)

    def _has_met(self, group: GroupRecord) -> bool:
        """Whether any module that it changes was imported."""
        sites = [site for member in group.members for site in member.sites]
        return any(self._modules.run_of(site) is not None for site in sites)

    # Events, from the finder and from the loaders of watched modules.

    def displaced(self, name: str) -> None:
        self._arrivals.overtaken(name)

    def before(self, spec: ModuleSpec) -> None:
        self._scopes.end_lost()
        with self._records.lock:
            self._modules.begin(spec.name, sys._getframe(1))
        is_news = False
        for group in self._watching(spec.name):
            is_first = not group.checked
            self._checking.gather(group, spec)
            is_news = is_news or is_first
        self._scopes.begin(spec.name)
        if is_news:
            self._settle()  # what another thread could not bind for want of evidence
        else:
            self._listener.changed(settled=False)

    def failed(self, name: str, module: ModuleType | None) -> None:
        with self._records.lock:
            ran_again = self._modules.interrupt(name, module)
        self._scopes.end(name)
        # The body of a reload ended in the middle: what it did define is to be bound all the same.
        if ran_again:
            self.after(name, module)
        else:
            self._settle(retry=False)  # what other threads left to this one

    def provides(self, name: str, original: ModuleSpec | None) -> bool:
        return self._provider(name, original) is not None

    def provide(self, name: str, module: ModuleType) -> ModuleType | None:
        found = self._provider(name, None)
        if found is None:
            return None
        group, member = found
        member.replacement = Origin("an empty stand-in module")
        try:
            provided = member.declared.provide(self._context(group, member), module)
        except Exception as error:
            self._transitions.fail(group, member, error)
            return None
        with self._records.lock:
            if not group.is_open:
                return None
            member.was_provided = True
            record_provided(group.transaction, name, provided)
        return provided

    def after(self, name: str, module: Any) -> None:
        self._scopes.end(name)
        with self._records.lock:
            if name in self._modules:
                self._drop_overwritten_changes(name)
            self._modules.end(name, module)
        self._settle()

    def _drop_overwritten_changes(self, name: str) -> None:
        """A module that ran again has put new originals over what was bound in it."""
        for group, member in self._members.get(name, ()):
            for site in member.sites if group.is_open else ():
                if site.path is not None and site.module == name:
                    with contextlib.suppress(TargetError):  # it is gone: nothing to take back
                        group.transaction.forget(self._modules.slot(site))

    def _watching(self, module: str) -> Iterator[GroupRecord]:
        groups = {group.id: group for group, _ in self._members.get(module, ())}
        return (group for group in groups.values() if group.is_open)

    def _provider(
        self, name: str, original: ModuleSpec | None
    ) -> tuple[GroupRecord, MemberRecord] | None:
        for group, member in self._members.get(name, ()):
            if group.is_open and member.declared.provides(original):
                return group, member
        return None

    def _context(self, group: GroupRecord, member: MemberRecord) -> ImportContext:
        return ImportContext(group, member, self._modules, self._references, self._observing)

    def _fail(self, group: GroupRecord, member: MemberRecord, error: BaseException) -> None:
        """Ends a Group of which a member was found to be wrong while it worked."""
        self._transitions.fail(group, member, error)
        self._transitions.abandon_dependents()
        self._listener.changed(settled=True)

    # Binding.

    def _has_run(self, name: str) -> None:
        """The body of a module has run: what was declared for it may be due."""
        self._due.update((group.id, group) for group, _ in self._members.get(name, ()))

    def _has_applied(self, applied: GroupRecord) -> None:
        """A Group is applied: those that depend on it may be due."""
        dependents = self._records.dependents
        self._due.update((g.id, g) for g in dependents if applied.id in g.depends_on)

    def _settle(self, *, retry: bool = True) -> None:
        """Binds everything that can be bound now, and completes what was cut short before.

        Args:
            retry: whether members whose binding was interrupted are bound too.
        """
        self._scopes.end_lost()
        self._arrivals.adopt(self.finder)
        self._transitions.complete()
        self._transitions.update(self._due.values())
        while (claimed := self._claim(sys._getframe(), retry=retry)) is not None:
            group, member = claimed
            if group.checked or self._checking.gather(group):
                self._bind(group, member)
            member.claim.release()
            self._transitions.update([group])
        self._references.retry_pending()
        self._transitions.abandon_dependents()
        self._listener.changed(settled=not self._modules.are_running)

    def _claim(self, frame: FrameType, *, retry: bool) -> tuple[GroupRecord, MemberRecord] | None:
        """Gives the next member that can be bound to the function call `frame`."""
        with self._records.lock:
            for id_ in sorted(self._due, key=self._order.__getitem__):
                group = self._due[id_]
                # Members are bound in order, but none waits for one whose target is not there.
                is_waiting = is_behind = group.checking.is_held
                for member in group.members if self._transitions.is_ready(group) else ():
                    is_taken = member.claim.is_held or (member.claim.was_lost and not retry)
                    is_due = any(map(self._modules.is_due, member.sites))
                    can_be_bound = is_due and self._can_be_bound(member)
                    if can_be_bound and not (is_taken or is_behind):
                        member.claim.take(frame)
                        return group, member
                    is_behind = is_behind or can_be_bound
                    is_waiting = is_waiting or is_due
                if not is_waiting:
                    del self._due[id_]
        return None

    def _can_be_bound(self, member: MemberRecord) -> bool:
        if member.waits_for is not None and member.waits_for not in self._modules:
            waited_for = sys.modules.get(member.waits_for)
            if waited_for is not None and is_unfinished(waited_for):
                return False
        return self._modules.run_of(member.sites[0]) is not None

    def _bind(self, group: GroupRecord, member: MemberRecord) -> None:
        try:
            self._bind_member(group, member)
        except OptimizationRollbackError:
            raise
        except NotReadyError as error:
            if error.module in self._modules:  # its body has ended, and it did not come
                self._transitions.fail(group, member, TargetError(f"{error.module} lacks it"))
            else:
                member.waits_for, member.note = error.module, str(error)
                self._records.touch(group)
        except Exception as error:
            self._transitions.fail(group, member, error)
        except BaseException as error:
            # An interrupt. A first import fails with it, and the next attempt binds; but a module
            # that was reloaded stays, with its originals.
            if any(map(self._modules.was_overwritten, member.sites)):
                self._transitions.fail(group, member, error)
            raise

    def _bind_member(self, group: GroupRecord, member: MemberRecord) -> None:
        due = [site for site in member.sites if self._modules.is_due(site)]
        runs = [(site, self._modules.run_of(site)) for site in due]
        context = self._context(group, member)
        if not self._checking.confirm(group, member, [s.path for s in due if s.path is not None]):
            return
        with collecting(RecordedMetrics(self._records, self._listener, group, member)):
            made = member.declared.make(context)
        self._checking.confirm(group, member, member.declared.uses)
        with self._records.lock:
            if not group.is_open:
                return
            # The record is made, and the binding noted, after every change: a binding that is
            # interrupted before its end is due again, and what it has done already is found done.
            member.declared.put(context, made)
            if member.note:  # nothing had to be done
                member.replacement = None
            self._record(member)
            self._records.touch(group)
            for site, run in runs:
                assert run is not None
                site.bind(run.module, run.number)

    def _record(self, member: MemberRecord) -> None:
        member.state, member.module = MemberState.BOUND, member.sites[0].module
        member.seconds = round(time.perf_counter() - self._started, 6)
        member.times_bound += 1

    def _after_fork(self) -> None:
        # Only the forking thread lives on. What others had claimed is free without further ado;
        # what they hold locked, and what they changed for the time of an import, is not.
        self._records.lock = threading.RLock()
        self._scopes.end_lost()
