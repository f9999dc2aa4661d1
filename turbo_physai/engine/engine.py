"""The engine: follows each watched module through its import and binds what was declared for it.

One lock, the report's, guards states and slots. It is never held while a module body, a
replacement's module or a wrapper factory runs: those import, and so take locks of the import
system. A member is claimed under the lock, made without it, and installed under it again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from turbo_physai.declarations import ImportAlias, Inject, ReplaceImport
from turbo_physai.declarations.names import ObjectPath
from turbo_physai.engine import binding, imports
from turbo_physai.engine.arrivals import Arrivals
from turbo_physai.engine.finder import WatchingFinder
from turbo_physai.engine.import_state import is_unfinished
from turbo_physai.engine.modules import Modules
from turbo_physai.engine.objects import NotReadyError, origin
from turbo_physai.engine.outcome import Outcomes
from turbo_physai.engine.references import References
from turbo_physai.engine.scopes import Scopes
from turbo_physai.engine.slot import TargetError
from turbo_physai.engine.state import GroupBinding, ImportBinding, MemberBinding
from turbo_physai.errors import OptimizationRollbackError
from turbo_physai.evidence import examine
from turbo_physai.evidence.definitions import Missing
from turbo_physai.plan import Evidence, gather
from turbo_physai.report import GroupState, MemberState, ReportedMetrics, collecting

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import FrameType, ModuleType

    from turbo_physai.report import OptimizationReport


class Engine:
    """Binds the Groups of a report, from `start` to `close`."""

    def __init__(self, report: OptimizationReport, groups: list[GroupBinding]) -> None:
        self._report = report
        self._groups = groups
        self._started = time.perf_counter()
        members = [m for g in groups if g.state.is_open for m in g.members]
        targets = frozenset(name for m in members for name in m.modules)
        declared = {ObjectPath.parse(path).dotted for m in members for path in m.paths}
        self._modules = Modules(targets)
        self._arrivals = Arrivals(report, groups, self._modules, self, self._settle)
        self._references = References(report, self._modules, declared, self._arrivals.follow)
        by_id = {group.id: group for group in groups}
        self._outcomes = Outcomes(report, by_id, self._references.take_back)
        self._scopes = Scopes(groups, self._modules, self._outcomes.fail)
        # Modules of replacements are watched too: one that is half-imported when it is needed is
        # asked again as soon as it is complete.
        paths = (m.declared.replacement for m in members if isinstance(m, MemberBinding))
        sources = {name for path in paths for name in ObjectPath.parse(path).modules}
        self.finder = WatchingFinder(targets | sources, self)

    def start(self) -> None:
        """Begins to watch, and binds what can be bound in modules that were imported before."""
        os.register_at_fork(after_in_child=self._after_fork)
        self._outcomes.abandon_dependents()
        self.finder.install()
        self._settle()
        self._arrivals.has_started = True

    def close(self) -> None:
        """Takes note that the process ends: what is pending now was never completed."""
        self._arrivals.adopt(self.finder)
        self._outcomes.update()
        with self._report.lock:
            for group in self._groups:
                if group.state is GroupState.PENDING:
                    self._outcomes.abandon(group, self._what_is_missing(group))
                    self._outcomes.abandon_dependents()
        self._report.changed()

    # Events, from the finder and from the loaders of watched modules.

    def displaced(self, name: str) -> None:
        self._arrivals.overtaken(name)

    def before(self, spec: ModuleSpec) -> None:
        self._scopes.end_lost()
        with self._report.lock:
            self._modules.begin(spec.name, sys._getframe(1))
        known = [group.checked for group in self._groups]
        for group in self._watching(spec.name):
            self._check(group, spec)
        self._scopes.begin(spec.name)
        if known != [group.checked for group in self._groups]:
            self._settle()  # what another thread could not bind for want of evidence
        else:
            self._report.changed()

    def failed(self, name: str, module: ModuleType | None) -> None:
        with self._report.lock:
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
        try:
            provided = imports.provide(member, module)
        except Exception as error:
            self._outcomes.fail(group, member, error)
            return None
        with self._report.lock:
            if not group.is_open:
                return None
            imports.record_provided(group.transaction, name, provided)
        return provided

    def after(self, name: str, module: Any) -> None:
        self._scopes.end(name)
        with self._report.lock:
            if name in self._modules:
                self._drop_overwritten_changes(name)
            self._modules.end(name, module)
        self._settle()

    def _drop_overwritten_changes(self, name: str) -> None:
        """A module that ran again has put new originals over what was bound in it."""
        for group in self._watching(name):
            for member in group.members:
                for site in member.sites if isinstance(member, MemberBinding) else ():
                    if site.module == name:
                        with contextlib.suppress(TargetError):  # it is gone: nothing to take back
                            group.transaction.forget(self._modules.slot(site))

    # Evidence.

    def _watching(self, module: str) -> Iterator[GroupBinding]:
        for group in self._groups:
            if group.is_open and any(module in m.modules for m in group.members):
                yield group

    def _provider(
        self, name: str, original: ModuleSpec | None
    ) -> tuple[GroupBinding, ImportBinding] | None:
        for group in self._watching(name):
            for member in group.members:
                if isinstance(member, ImportBinding) and member.module == name:
                    replaces = isinstance(member.declared, ReplaceImport)
                    if replaces or imports.is_optional_and_missing(member, original):
                        return group, member
        return None

    def _check(self, group: GroupBinding, spec: ModuleSpec | None = None) -> bool:
        """Gathers the evidence for a Group: of all members the first time, later of those whose
        module runs again. Tells whether the Group may be bound by this thread now."""
        with self._report.lock:
            if group.checking.is_held:  # that thread will bind what waits once it has the evidence
                return False
            group.checking.take(sys._getframe())
            first = not group.checked
        members = [
            m.declared
            for m in group.members
            if isinstance(m, MemberBinding) and (spec is None or spec.name in m.modules)
        ]
        stated = self._report.optimization_config.compatibility
        try:
            found = gather(group.prepared, stated, spec, None if first else members)
        except Exception as error:
            self._outcomes.fail(group, None, error)
            found = Evidence([], [])
        with self._report.lock:
            self._report.prepared_execution.add(found.config)
            group.prepared.add(found.group)
            group.checked = True
            group.checking.release()
        self._outcomes.update()
        return group.is_open

    # Binding.

    def _settle(self, *, retry: bool = True) -> None:
        """Binds everything that can be bound now, and completes what was cut short before.

        Args:
            retry: whether members whose binding was interrupted are bound too.
        """
        self._scopes.end_lost()
        self._arrivals.adopt(self.finder)
        self._outcomes.update()
        while (claimed := self._claim(sys._getframe(), retry)) is not None:
            group, member = claimed
            if group.checked or self._check(group):
                self._bind(group, member)
            member.claim.release()
            self._outcomes.update()
        self._references.retry_pending()
        self._outcomes.abandon_dependents()
        self._report.changed()

    def _claim(
        self, frame: FrameType, retry: bool
    ) -> tuple[GroupBinding, MemberBinding | ImportBinding] | None:
        """Gives the next member that can be bound to the function call `frame`."""
        with self._report.lock:
            for group in self._groups:
                if self._outcomes.is_ready(group) and not group.checking.is_held:
                    for member in group.members:
                        is_free = not member.claim.is_held and (retry or not member.claim.was_lost)
                        if is_free and self._can_be_bound(member):
                            member.claim.take(frame)
                            return group, member
        return None

    def _can_be_bound(self, member: MemberBinding | ImportBinding) -> bool:
        if isinstance(member, ImportBinding):
            run = self._modules.get(member.module)
            bound = (member.bound_in, member.runs)
            return run is not None and bound != (run.module, run.number)
        if member.waits_for is not None and member.waits_for not in self._modules:
            waited_for = sys.modules.get(member.waits_for)
            if waited_for is not None and is_unfinished(waited_for):
                return False
        has_run = self._modules.run_of(member.sites[0]) is not None
        return has_run and any(map(self._modules.is_due, member.sites))

    def _bind(self, group: GroupBinding, member: MemberBinding | ImportBinding) -> None:
        try:
            if isinstance(member, ImportBinding):
                self._bind_import(group, member)
            else:
                self._bind_object(group, member)
        except OptimizationRollbackError:
            raise
        except NotReadyError as error:
            if error.module in self._modules:  # its body has ended, and it did not come
                self._outcomes.fail(group, member, TargetError(f"{error.module} lacks it"))
            elif isinstance(member, MemberBinding):
                member.waits_for, member.execution.note = error.module, str(error)
        except Exception as error:
            self._outcomes.fail(group, member, error)
        except BaseException as error:
            # An interrupt. A first import fails with it, and the next attempt binds; but a module
            # that was reloaded stays, with its originals.
            if self._was_overwritten(member):
                self._outcomes.fail(group, member, error)
            raise

    def _was_overwritten(self, member: MemberBinding | ImportBinding) -> bool:
        """Whether a module in which it was bound has been run again, and not been bound since."""
        if isinstance(member, ImportBinding):
            run = self._modules.get(member.module)
            return run is not None and run.module is member.bound_in and run.number != member.runs
        runs = [(site, self._modules.run_of(site)) for site in member.sites]
        return any(
            run is not None and site.bound_in is run.module and site.runs != run.number
            for site, run in runs
        )

    # The record is made, and the binding noted, after every change: a binding that is interrupted
    # before its end is due again, and what it has done already is found done.

    def _bind_import(self, group: GroupBinding, member: ImportBinding) -> None:
        run = self._modules[member.module]
        value = imports.value_of(member)
        with self._report.lock:
            if not group.is_open:
                return
            if isinstance(member.declared, (ImportAlias, Inject)):
                imports.add_name(group, member, run.module, value)
            elif isinstance(member.declared, imports.PROVIDES) and not group.transaction:
                member.execution.note = "not needed: the module was there"
            self._record(member, member.module)
            member.bound_in, member.runs = run.module, run.number

    def _bind_object(self, group: GroupBinding, member: MemberBinding) -> None:
        due = [site for site in member.sites if self._modules.is_due(site)]
        places = [(site, self._modules.run_of(site), self._modules.slot(site)) for site in due]
        exchange = member.exchange
        site, _, slot = places[0]
        if site is member.sites[0] and group.transaction.holds(slot) is None:
            options = group.prepared.entry.options or {}
            with collecting(ReportedMetrics(self._report, group.execution, member.execution)):
                exchange = binding.make(member.declared, slot, options)
        assert exchange is not None
        with self._report.lock:
            if not group.is_open:
                return
            if exchange is not member.exchange:
                member.exchanges.append(exchange)
            for site, _, slot in places:
                binding.put(group.transaction, slot, exchange, site.path.text)
            if not exchange.is_inherited:
                self._references.rebind(group, member, exchange)
            record = member.execution
            record.original, record.replacement = origin(exchange.old), origin(exchange.new)
            record.note = ""
            self._record(member, member.sites[0].module or "")
            for site, run, _ in places:
                assert run is not None
                site.bind(run.module, run.number)

    def _record(self, member: MemberBinding | ImportBinding, module: str) -> None:
        record = member.execution
        record.state, record.module = MemberState.BOUND, module
        record.seconds = round(time.perf_counter() - self._started, 6)
        record.times_bound += 1

    # The ends of the process.

    def _what_is_missing(self, group: GroupBinding) -> str:
        waiting = [m for m in group.members if not m.is_bound]
        main = getattr(sys.modules.get("__main__"), "__spec__", None)
        for member in waiting:
            if main is not None and main.name in member.modules:
                return f"{main.name} ran as __main__, where it is not patched"
        notes = [m.execution.note for m in waiting if m.execution.note]
        return "; ".join(notes or [why for m in waiting for why in self._why_unbound(m)])

    def _why_unbound(self, member: MemberBinding | ImportBinding) -> Iterator[str]:
        for path in member.missing:
            found = examine.read(ObjectPath.parse(path)).found
            if isinstance(member, MemberBinding) and isinstance(found, Missing):
                yield f"never imported: {path} ({found.reason})"
            elif self._can_be_bound(member):
                name = ObjectPath.parse(path).modules[0]
                yield f"{path}: {self._arrivals.why_late(name, self.finder)}"
            else:
                yield f"never imported: {path}"

    def _after_fork(self) -> None:
        # Only the forking thread lives on. What others had claimed is free without further ado;
        # what they hold locked, and what they changed for the time of an import, is not.
        self._report.lock = threading.RLock()
        self._scopes.end_lost()
