"""The engine: follows each watched module through its import and binds what was declared for it.

One lock, the report's, guards states and slots. It is never held while a module body, a
replacement's module or a wrapper factory runs: those import, and so take locks of the import
system. A member is claimed under the lock, made without it, and installed under it again.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from turbo_physai.config import Trust
from turbo_physai.declarations.names import ObjectPath
from turbo_physai.engine import binding
from turbo_physai.engine.captured import is_unfinished
from turbo_physai.engine.finder import WatchingFinder
from turbo_physai.engine.objects import NotReadyError, origin
from turbo_physai.engine.outcome import Outcomes
from turbo_physai.engine.slot import Slot, TargetError, find
from turbo_physai.engine.state import GroupBinding, MemberBinding, Site
from turbo_physai.errors import OptimizationRollbackError
from turbo_physai.evidence import Check, examine, locate
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
        self._outcomes = Outcomes(report, {group.id: group for group in groups})
        self._started = time.perf_counter()
        self._runs: dict[str, Run] = {}
        self._rechecks: list[Recheck] = []
        members = [m for g in groups if g.state.is_open for m in g.members]
        self._declared = {s.path.dotted for m in members for s in m.sites}
        # Modules of replacements are watched too: one that is half-imported when it is needed is
        # asked again as soon as it is complete.
        self._targets = {name for m in members for s in m.sites for name in s.path.modules}
        sources = {n for m in members for n in ObjectPath.parse(m.declared.replacement).modules}
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
            for group in self._groups:
                if group.state is GroupState.PENDING:
                    self._outcomes.strand(group, self._what_is_missing(group))
        self._report.changed()

    # Events, from the loaders of watched modules.

    def before(self, spec: ModuleSpec, module: ModuleType) -> None:
        for group in self._watching(spec.name):
            self._check(group, spec)

    def failed(self, name: str, module: ModuleType) -> None:
        # The body of a reload ended in the middle: what it did define is to be bound all the same.
        if name in self._runs and self._runs[name].module is module:
            self.after(name, module)

    def after(self, name: str, module: ModuleType) -> None:
        with self._report.lock:
            number = self._runs[name].number + 1 if name in self._runs else 1
            # A module may have put another object in its own place.
            self._runs[name] = Run(sys.modules.get(name, module), number)
        self._settle()

    # Evidence.

    def _watching(self, module: str) -> Iterator[GroupBinding]:
        for group in self._groups:
            paths = (site.path for member in group.members for site in member.sites)
            if group.state.is_open and any(module in path.modules for path in paths):
                yield group

    def _check(self, group: GroupBinding, spec: ModuleSpec | None = None) -> None:
        """Checks all members the first time, later those of the module that runs again."""
        members = group.members
        if group.checked and spec is not None:
            members = tuple(m for m in members if any(spec.name in s.path.modules for s in m.sites))
        trust = group.prepared.entry.trust or Trust()
        try:
            checks = [check for m in members for check in examine.member(m.declared, trust, spec)]
        except Exception as error:
            self._outcomes.fail(group, None, error)
            return
        with self._report.lock:
            group.checked = True
            group.prepared.add(checks)
        if group.prepared.decision == "block":
            self._outcomes.block(group, group.prepared.reason)

    # Binding.

    def _settle(self) -> None:
        """Binds everything that can be bound now."""
        self._notice_what_came_past_us()
        while (claimed := self._claim()) is not None:
            group, member = claimed
            try:
                if not group.checked:
                    self._check(group)
                if group.state.is_open:
                    self._bind(group, member)
            finally:
                member.busy = False
        self._recheck()
        self._outcomes.strand_dependents()
        self._report.changed()

    def _notice_what_came_past_us(self) -> None:
        """Modules that were imported before the engine started, or by a finder in front of it."""
        with self._report.lock:
            for name in self._targets - self._runs.keys():
                module = sys.modules.get(name)
                if module is None or is_unfinished(module):
                    continue
                self._runs[name] = Run(module, 1)
                reason = "it was imported before it could be watched: others may hold its originals"
                check = Check("imported_before", "warning", name, reason=reason)
                for group in self._watching(name):
                    if any(self._module_of(s) == name for m in group.members for s in m.sites):
                        group.prepared.add([check])

    def _claim(self) -> tuple[GroupBinding, MemberBinding] | None:
        with self._report.lock:
            for group in self._groups:
                if not self._outcomes.is_ready(group):
                    continue
                for member in group.members:
                    if not member.busy and self._can_be_bound(member):
                        member.busy = True
                        return group, member
        return None

    def _can_be_bound(self, member: MemberBinding) -> bool:
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

    def _bind(self, group: GroupBinding, member: MemberBinding) -> None:
        try:
            self._bind_or_raise(group, member)
        except OptimizationRollbackError:
            raise
        except NotReadyError as error:
            if error.module in self._runs:  # its body has ended, and it did not come
                self._outcomes.fail(group, member, TargetError(f"{error.module} lacks it"))
            else:
                member.waits_for, member.execution.note = error.module, str(error)
        except Exception as error:
            self._outcomes.fail(group, member, error)
        except BaseException as error:
            self._outcomes.fail(group, member, error)
            raise

    def _bind_or_raise(self, group: GroupBinding, member: MemberBinding) -> None:
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
            inherited = slot.is_inherited
            for site, run, slot in places:
                binding.put(group.transaction, slot, exchange, site.path.text)
                site.bound_in, site.runs = run.module, run.number
            home = member.sites[0].module or ""
            if not inherited:
                self._rebind(group, member, exchange, home)
            member.exchange = exchange
            self._record(member, exchange, home)
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
        if unfinished:
            self._rechecks.append(Recheck(group, member, exchange, home, unfinished))

    def _recheck(self) -> None:
        with self._report.lock:
            waiting, self._rechecks = self._rechecks, []
            for each in waiting:
                if each.group.state.is_open and each.member.exchange is each.exchange:
                    self._rebind(each.group, each.member, each.exchange, each.home, each.modules)

    def _record(self, member: MemberBinding, exchange: binding.Exchange, home: str) -> None:
        record = member.execution
        record.state = MemberState.BOUND
        record.module, record.note = home, ""
        record.original, record.replacement = origin(exchange.old), origin(exchange.new)
        record.seconds = round(time.perf_counter() - self._started, 6)
        record.times_bound += 1

    # The ends of the process.

    def _what_is_missing(self, group: GroupBinding) -> str:
        waiting = [m for m in group.members if not m.is_bound]
        main = getattr(sys.modules.get("__main__"), "__spec__", None)
        for member in waiting:
            if main is not None and main.name in member.sites[0].path.modules:
                return f"{main.name} ran as __main__, where it is not patched"
        notes = [m.execution.note for m in waiting if m.execution.note]
        paths = [s.path.text for m in waiting for s in m.sites if s.bound_in is None]
        return "; ".join(notes) or f"never imported: {', '.join(paths)}"

    def _after_fork(self) -> None:
        # Only the forking thread lives on: what others held or had claimed is free again.
        self._report.lock = threading.RLock()
        for group in self._groups:
            for member in group.members:
                member.busy = False


def _slot(site: Site, run: Run) -> Slot:
    assert site.module is not None
    return find(run.module, site.path.names_in(site.module))
