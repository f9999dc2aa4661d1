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
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from turbo_physai.declarations import ImportAlias, Inject, ReplaceImport
from turbo_physai.declarations.names import ObjectPath
from turbo_physai.engine import binding, imports
from turbo_physai.engine.captured import is_unfinished
from turbo_physai.engine.finder import WatchingFinder
from turbo_physai.engine.modules import Modules
from turbo_physai.engine.objects import NotReadyError
from turbo_physai.engine.origins import origin
from turbo_physai.engine.outcome import Outcomes
from turbo_physai.engine.references import References
from turbo_physai.engine.slot import TargetError
from turbo_physai.engine.state import GroupBinding, ImportBinding, MemberBinding
from turbo_physai.errors import OptimizationRollbackError
from turbo_physai.evidence import Check, examine
from turbo_physai.evidence.definitions import Missing, Unknown
from turbo_physai.plan import Evidence, confirm, gather, regather
from turbo_physai.report import GroupState, MemberState, ReportedFacts, telling

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

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
        self._references = References(report, self._modules, declared)
        by_id = {group.id: group for group in groups}
        self._outcomes = Outcomes(report, by_id, self._references.take_back)
        # Modules of replacements are watched too: one that is half-imported when it is needed is
        # asked again as soon as it is complete.
        paths = (m.declared.replacement for m in members if isinstance(m, MemberBinding))
        sources = {name for path in paths for name in ObjectPath.parse(path).modules}
        self.finder = WatchingFinder(targets | sources, self)

    def start(self) -> None:
        """Begins to watch, and binds what can be bound in modules that were imported before."""
        os.register_at_fork(after_in_child=self._after_fork)
        self._outcomes.strand_dependents()
        self.finder.install()
        self._settle()

    def close(self) -> None:
        """Takes note that the process ends: what is pending now was never completed."""
        with self._report.lock:
            self._notice_what_came_past_us()
            for group in self._groups:
                if group.state is GroupState.PENDING:
                    self._outcomes.strand(group, self._what_is_missing(group))
                    self._outcomes.strand_dependents()
        self._report.changed()

    # Events, from the loaders of watched modules.

    def before(self, spec: ModuleSpec) -> None:
        with self._report.lock:
            self._modules.begin(spec.name)
        known = [group.checked for group in self._groups]
        for group in self._watching(spec.name):
            self._check(group, spec)
        self._change_for_a_while(spec.name)
        if known != [group.checked for group in self._groups]:
            self._settle()  # what another thread could not bind for want of evidence
        else:
            self._report.changed()

    def failed(self, name: str, module: ModuleType | None) -> None:
        with self._report.lock:
            self._modules.interrupt(name)
        self._end_what_was_for_a_while(name)
        # The body of a reload ended in the middle: what it did define is to be bound all the same.
        if name in self._modules and self._modules[name].module is module:
            self.after(name, module)

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
            if not group.state.is_open:
                return None
            imports.record_provided(group.transaction, name, provided)
        return provided

    def after(self, name: str, module: ModuleType) -> None:
        self._end_what_was_for_a_while(name)
        with self._report.lock:
            if self._modules.end(name, module).number > 1:
                self._forget_what_was_overwritten(name)
        self._settle()

    def _forget_what_was_overwritten(self, name: str) -> None:
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
            if group.state.is_open and any(module in m.modules for m in group.members):
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

    def _change_for_a_while(self, name: str) -> None:
        """Makes the changes that are to last as long as the module `name` runs."""
        self._around(self._watching(name), name, imports.begin)

    def _end_what_was_for_a_while(self, name: str) -> None:
        """Takes them back; those of a Group that has ended meanwhile as well."""
        self._around(self._groups, name, imports.end)

    def _around(
        self,
        groups: Iterable[GroupBinding],
        name: str,
        act: Callable[[GroupBinding, ImportBinding], None],
    ) -> None:
        for group in groups:
            for member in group.members:
                if isinstance(member, ImportBinding) and member.module == name:
                    try:
                        act(group, member)
                    except Exception as error:
                        self._outcomes.fail(group, member, error)

    def _check(self, group: GroupBinding, spec: ModuleSpec | None = None) -> bool:
        """Gathers the evidence for a Group: of all members the first time, later of those whose
        module runs again. Tells whether the Group may be bound by this thread now."""
        with self._report.lock:
            if group.checking:  # another thread will bind what waits once it has the evidence
                return False
            group.checking, first = True, not group.checked
        stated = self._report.optimization_config.compatibility
        try:
            if first or spec is None:
                found = gather(group.prepared, stated, spec)
            else:
                found = regather(group.prepared, spec)
        except Exception as error:
            self._outcomes.fail(group, None, error)
            found = Evidence([], [])
        with self._report.lock:
            group.checked, group.checking = True, False
        return self._decide(group, found)

    def _decide(self, group: GroupBinding, found: Evidence) -> bool:
        """Takes in evidence for a Group and ends what it blocks. Tells whether the Group may be
        bound."""
        prepared = self._report.prepared_execution
        with self._report.lock:
            prepared.take(group.prepared, found)
        for each in self._groups:
            is_blocked = each.prepared.decision == "block" and each.state.is_open
            if is_blocked and prepared.blocking(each.prepared):  # others end with a dependency
                self._outcomes.block(each, each.prepared.reason)
        return group.state.is_open

    def _confirm(self, group: GroupBinding, member: MemberBinding, paths: Sequence[str]) -> bool:
        """Completes what the source left open about objects that are there now. Tells whether the
        Group may be bound."""
        if not group.prepared.leaves_open(paths):
            return True
        return self._decide(group, confirm(group.prepared, member.declared, paths))

    # Binding.

    def _settle(self) -> None:
        """Binds everything that can be bound now."""
        self._notice_what_came_past_us()
        while (claimed := self._claim()) is not None:
            group, member = claimed
            try:
                if group.checked or self._check(group):
                    self._bind(group, member)
            finally:
                member.busy = False
        self._references.look_again()
        self._outcomes.strand_dependents()
        self._report.changed()

    def _notice_what_came_past_us(self) -> None:
        """Modules that were imported before the engine started, or by a finder in front of it."""
        with self._report.lock:
            for name in self._modules.notice():
                check = Check("imported_before", "warning", name, reason=self._why_late())
                for group in self._watching(name):
                    if any(self._acts_on(m, name) for m in group.members):
                        self._report.prepared_execution.add_to(group.prepared, [check])

    def _why_late(self) -> str:
        first = "" if self.finder.is_first else ", by a finder that stands before ours"
        return f"it was imported before it could be watched{first}: others may hold its originals"

    def _acts_on(self, member: MemberBinding | ImportBinding, module: str) -> bool:
        if isinstance(member, ImportBinding):
            return member.module == module
        return any(self._modules.holder(site) == module for site in member.sites)

    def _claim(self) -> tuple[GroupBinding, MemberBinding | ImportBinding] | None:
        with self._report.lock:
            for group in self._groups:
                if not self._outcomes.is_ready(group):
                    continue
                for member in group.members:
                    if not member.busy and not group.checking and self._can_be_bound(member):
                        member.busy = True
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
            self._outcomes.fail(group, member, error)
            raise

    def _bind_import(self, group: GroupBinding, member: ImportBinding) -> None:
        run = self._modules[member.module]
        value = imports.value_of(member)
        with self._report.lock:
            if not group.state.is_open:
                return
            if isinstance(member.declared, (ImportAlias, Inject)):
                imports.add_name(group, member, run.module, value)
            elif isinstance(member.declared, imports.PROVIDES) and not group.transaction:
                member.execution.note = "not needed: the module was there"
            if not member.execution.note:
                member.execution.replacement = imports.author(member)
            member.bound_in, member.runs = run.module, run.number
            self._record(member, member.module)
            self._outcomes.complete(group)

    def _bind_object(self, group: GroupBinding, member: MemberBinding) -> None:
        due = [site for site in member.sites if self._modules.is_due(site)]
        places = [(site, self._modules.run_of(site), self._modules.slot(site)) for site in due]
        exchange = member.exchange
        site, _, slot = places[0]
        if not self._confirm(group, member, [site.path.text for site in due]):
            return
        if site is member.sites[0] and group.transaction.holds(slot) is None:
            with telling(ReportedFacts(self._report, group.execution, member.execution)):
                exchange = binding.make(member.declared, slot, group.prepared.options)
            self._confirm(group, member, member.declared.uses)
        assert exchange is not None
        with self._report.lock:
            if not group.state.is_open:
                return
            if exchange is not member.exchange:
                member.exchanges.append(exchange)
            inherited = slot.is_inherited
            for site, run, slot in places:
                assert run is not None
                binding.put(group.transaction, slot, exchange, site.path.text)
                site.bound_in, site.runs = run.module, run.number
            if not inherited:
                self._references.rebind(group, member, exchange)
            record = member.execution
            record.original = origin(member.declared.target, exchange.old)
            record.replacement = origin(member.declared.replacement, exchange.author)
            record.backend, record.note = exchange.backend, ""
            self._record(member, member.sites[0].module or "")
            self._outcomes.complete(group)

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
            found: object = examine.read(ObjectPath.parse(path)).found
            if isinstance(found, Unknown) and found.is_located:
                found = None
            if isinstance(member, MemberBinding) and isinstance(found, (Missing, Unknown)):
                yield f"never imported: {path} ({found.reason})"
            elif self._can_be_bound(member):
                yield f"{path}: {self._why_late()}"
            else:
                yield f"never imported: {path}"

    def _after_fork(self) -> None:
        # Only the forking thread lives on: what others held or had claimed is free again.
        self._report.lock = threading.RLock()
        for group in self._groups:
            for member in group.members:
                member.busy = False
