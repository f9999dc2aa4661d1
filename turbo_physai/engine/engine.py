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
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs

from turbo_physai.declarations import ImportAlias, Inject, RegistryOverride, ReplaceImport
from turbo_physai.declarations.names import ObjectPath
from turbo_physai.engine import binding, imports
from turbo_physai.engine.captured import is_unfinished, when_finished
from turbo_physai.engine.finder import WatchingFinder
from turbo_physai.engine.objects import NotReadyError, origin
from turbo_physai.engine.outcome import Outcomes
from turbo_physai.engine.slot import Slot, TargetError, find
from turbo_physai.engine.state import GroupBinding, ImportBinding, MemberBinding, Site
from turbo_physai.errors import OptimizationRollbackError
from turbo_physai.evidence import Check, examine, locate
from turbo_physai.evidence.definitions import Missing
from turbo_physai.plan import Evidence, gather
from turbo_physai.report import GroupState, MemberState

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from turbo_physai.report import OptimizationReport


@attrs.frozen(eq=False)
class Run:
    """What `sys.modules` holds for a module whose body has run, and how often it has."""

    module: Any
    number: int


@attrs.frozen(eq=False)
class Recheck:
    """Captured references that could not be looked for in modules still being imported."""

    group: GroupBinding
    member: MemberBinding
    exchange: binding.Exchange
    home: str
    modules: set[str]


class Engine:
    """Binds the Groups of a report, from `start` to `close`."""

    def __init__(self, report: OptimizationReport, groups: list[GroupBinding]) -> None:
        self._report = report
        self._groups = groups
        self._outcomes = Outcomes(report, {group.id: group for group in groups}, self._take_back)
        self._started = time.perf_counter()
        self._runs: dict[str, Run] = {}
        self._running: set[str] = set()
        self._rechecks: list[Recheck] = []
        members = [m for g in groups if g.state.is_open for m in g.members]
        self._declared = {ObjectPath.parse(path).dotted for m in members for path in m.paths}
        self._targets = frozenset(name for m in members for name in m.modules)
        # Modules of replacements are watched too: one that is half-imported when it is needed is
        # asked again as soon as it is complete.
        paths = (m.declared.replacement for m in members if isinstance(m, MemberBinding))
        sources = {name for path in paths for name in ObjectPath.parse(path).modules}
        self.finder = WatchingFinder(self._targets | sources, self)

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
            self._running.add(spec.name)
        known = [group.checked for group in self._groups]
        for group in self._watching(spec.name):
            self._check(group, spec)
        self._registries(spec.name, imports.free_names)
        if known != [group.checked for group in self._groups]:
            self._settle()  # what another thread could not bind for want of evidence
        else:
            self._report.changed()

    def failed(self, name: str, module: ModuleType | None) -> None:
        with self._report.lock:
            self._running.discard(name)
        self._registries(name, imports.settle_names)
        # The body of a reload ended in the middle: what it did define is to be bound all the same.
        if name in self._runs and self._runs[name].module is module:
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
        with self._report.lock:
            self._running.discard(name)
            number = self._runs[name].number + 1 if name in self._runs else 1
            # A module may have put another object in its own place.
            self._runs[name] = Run(sys.modules.get(name, module), number)
            if number > 1:
                self._forget_what_was_overwritten(name)
        self._settle()

    def _forget_what_was_overwritten(self, name: str) -> None:
        """A module that ran again has put new originals over what was bound in it."""
        for group in self._watching(name):
            for member in group.members:
                for site in member.sites if isinstance(member, MemberBinding) else ():
                    if site.module == name:
                        with contextlib.suppress(TargetError):  # it is gone: nothing to take back
                            group.transaction.forget(_slot(site, self._runs[name]))

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

    def _registries(self, name: str, act: Callable[[GroupBinding, ImportBinding], None]) -> None:
        """Frees or settles the names of a registry around the run of the module `name`."""
        for group in self._watching(name):
            for member in group.members:
                if isinstance(member.declared, RegistryOverride) and member.modules == {name}:
                    assert isinstance(member, ImportBinding)
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
            group.checked, group.checking = True, False
        for each in self._groups:
            if each.prepared.decision == "block":
                self._outcomes.block(each, each.prepared.reason)
        return group.state.is_open

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
        self._recheck()
        self._outcomes.strand_dependents()
        self._report.changed()

    def _notice_what_came_past_us(self) -> None:
        """Modules that were imported before the engine started, or by a finder in front of it."""
        with self._report.lock:
            # The import system does not tell of every body that it still runs: not of one that
            # is run by a lazy module or by a loader of the old kind.
            for name in self._targets - self._runs.keys() - self._running:
                module = sys.modules.get(name)
                if module is None or is_unfinished(module):
                    continue
                self._runs[name] = Run(module, 1)
                check = Check("imported_before", "warning", name, reason=self._why_late())
                for group in self._watching(name):
                    if any(self._acts_on(m, name) for m in group.members):
                        group.prepared.add([check])

    def _why_late(self) -> str:
        first = "" if self.finder.is_first else ", by a finder that stands before ours"
        return f"it was imported before it could be watched{first}: others may hold its originals"

    def _acts_on(self, member: MemberBinding | ImportBinding, module: str) -> bool:
        if isinstance(member, ImportBinding):
            return member.module == module
        return any(self._module_of(site) == module for site in member.sites)

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
            run = self._runs.get(member.module)
            bound = (member.bound_in, member.runs)
            return run is not None and bound != (run.module, run.number)
        if member.waits_for is not None and member.waits_for not in self._runs:
            waited_for = sys.modules.get(member.waits_for)
            if waited_for is not None and is_unfinished(waited_for):
                return False
        target, *_ = member.sites
        return self._run_of(target) is not None and any(self._is_due(s) for s in member.sites)

    def _run_of(self, site: Site) -> Run | None:
        return self._runs.get(self._module_of(site) or "")

    def _is_due(self, site: Site) -> bool:
        run = self._run_of(site)
        return run is not None and not site.is_bound(run.module, run.number)

    def _module_of(self, site: Site) -> str | None:
        """The module part of a path: its longest prefix that is a module. None until a package
        that may hold the rest has run, since only then its search path is certain."""
        if site.module is None:
            for name in site.path.modules:
                spec = None if name in self._runs else locate.locate(name)
                if name in self._runs or (spec and spec.submodule_search_locations is None):
                    site.module = name
                    break
                if spec is not None:
                    break
        return site.module

    def _bind(self, group: GroupBinding, member: MemberBinding | ImportBinding) -> None:
        try:
            if isinstance(member, ImportBinding):
                self._bind_import(group, member)
            else:
                self._bind_object(group, member)
        except OptimizationRollbackError:
            raise
        except NotReadyError as error:
            if error.module in self._runs:  # its body has ended, and it did not come
                self._outcomes.fail(group, member, TargetError(f"{error.module} lacks it"))
            elif isinstance(member, MemberBinding):
                member.waits_for, member.execution.note = error.module, str(error)
        except Exception as error:
            self._outcomes.fail(group, member, error)
        except BaseException as error:
            self._outcomes.fail(group, member, error)
            raise

    def _bind_import(self, group: GroupBinding, member: ImportBinding) -> None:
        run = self._runs[member.module]
        value = imports.value_of(member)
        with self._report.lock:
            if not group.state.is_open:
                return
            if isinstance(member.declared, (ImportAlias, Inject)):
                imports.add_name(group, member, run.module, value)
            elif isinstance(member.declared, RegistryOverride):
                imports.settle_names(group, member)
            elif not group.transaction:
                member.execution.note = "not needed: the module was there"
            member.bound_in, member.runs = run.module, run.number
            self._record(member, member.module)
            self._outcomes.complete(group)

    def _bind_object(self, group: GroupBinding, member: MemberBinding) -> None:
        due = [(s, self._run_of(s)) for s in member.sites if self._is_due(s)]
        places = [(site, run, _slot(site, run)) for site, run in due if run is not None]
        exchange = member.exchange
        site, _, slot = places[0]
        if site is member.sites[0] and group.transaction.holds(slot) is None:
            exchange = binding.make(member.declared, slot, group.prepared.entry.options or {})
        assert exchange is not None
        with self._report.lock:
            if not group.state.is_open:
                return
            if exchange is not member.exchange:
                member.exchanges.append(exchange)
            inherited = slot.is_inherited
            for site, run, slot in places:
                binding.put(group.transaction, slot, exchange, site.path.text)
                site.bound_in, site.runs = run.module, run.number
            home = member.sites[0].module or ""
            if not inherited:
                self._rebind(group, member, exchange, home)
            record = member.execution
            record.original, record.replacement = origin(exchange.old), origin(exchange.new)
            record.note = ""
            self._record(member, home)
            self._outcomes.complete(group)

    def _rebind(
        self,
        group: GroupBinding,
        member: MemberBinding,
        exchange: binding.Exchange,
        home: str,
        only: set[str] | None = None,
    ) -> None:
        unfinished = binding.rebind(
            group.transaction, member, exchange, home, self._runs, self._declared, only
        )
        self._look_again(Recheck(group, member, exchange, home, unfinished), first=only is None)

    def _take_back(self, group: GroupBinding) -> None:
        """Takes back from others what they took from the targets of a Group while it was live."""
        members = [m for m in group.members if isinstance(m, MemberBinding)]
        for member in members:
            for exchange in reversed(member.exchanges):
                unfinished = binding.take_back(member, exchange, self._runs)
                self._look_again(Recheck(group, member, exchange, "", unfinished), first=True)

    def _look_again(self, later: Recheck, *, first: bool) -> None:
        if later.modules:
            self._rechecks.append(later)
            for name in later.modules if first else ():
                when_finished(name, self._import_has_ended)

    def _recheck(self) -> None:
        with self._report.lock:
            waiting, self._rechecks = self._rechecks, []
            for each in waiting:
                if not each.group.state.is_open:
                    unfinished = binding.take_back(
                        each.member, each.exchange, self._runs, each.modules
                    )
                    self._look_again(attrs.evolve(each, modules=unfinished), first=False)
                elif each.member.exchange is each.exchange:
                    self._rebind(each.group, each.member, each.exchange, each.home, each.modules)

    def _import_has_ended(self) -> None:
        self._recheck()
        self._report.changed()

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
            if isinstance(found, Missing):
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


def _slot(site: Site, run: Run) -> Slot:
    assert site.module is not None
    return find(run.module, site.path.names_in(site.module))
