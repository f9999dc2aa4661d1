"""Notices targets that were imported without our finder: before it was installed, by a finder that
was put in front of it, or after it was removed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from turbo_physai.engine.import_state import is_lazy, is_reloading, is_unfinished, when_finished
from turbo_physai.engine.loader import Events, watch
from turbo_physai.errors import OptimizationRollbackError
from turbo_physai.evidence import Check
from turbo_physai.process.messages import warn

if TYPE_CHECKING:
    from turbo_physai.engine.finder import WatchingFinder
    from turbo_physai.engine.modules import Modules
    from turbo_physai.engine.records import GroupRecord, MemberRecord, Records


class Arrivals:
    """Adopts targets that nobody announced.

    Attributes:
        has_started: whether `apply` has returned, so that news are to be logged.
    """

    def __init__(
        self,
        records: Records,
        members: Mapping[str, Iterable[tuple[GroupRecord, MemberRecord]]],
        modules: Modules,
        events: Events,
        settle: Callable[[], None],
    ) -> None:
        self._records = records
        self._members = members
        self._modules = modules
        self._events = events
        self._settle = settle
        self._followed: set[str] = set()
        self._begun_before: set[str] = set()
        self.has_started = False

    def adopt(self, finder: WatchingFinder) -> None:
        """Takes note of the targets that are there, and of the imports that are under way."""
        self._check_place(finder)
        with self._records.lock:
            for name, module in self._modules.unannounced():
                if is_lazy(module):
                    self._watch(name, module)
                elif is_unfinished(module) or is_reloading(name):
                    self.follow(name)
                    if not self.has_started:
                        self._begun_before.add(name)
            # Asked anew: an import that had ended before it could be followed is noticed here.
            for name, module in self._modules.unannounced():
                if not is_unfinished(module) and not is_reloading(name):
                    self._modules.end(name, module)
                    acting = {g.id: g for g, m in self._members[name] if self._acts_on(m, name)}
                    why = self.why_late(name, finder)
                    self._warn("imported_before", name, why, acting.values())

    def overtaken(self, name: str) -> None:
        """A finder in front of ours may have found targets by itself. Noticed in a search for the
        module `name`, where no lock may be taken: what there is to do is done when an import ends.
        """
        self.follow(name)
        for imported, module in self._modules.unannounced():
            if is_unfinished(module):
                self.follow(imported)

    def follow(self, name: str) -> None:
        """Settles once the import of the module `name`, which is under way, has ended."""
        if name not in self._followed:
            self._followed.add(name)
            if not when_finished(name, functools.partial(self._import_has_ended, name)):
                self._followed.discard(name)

    def why_late(self, name: str, finder: WatchingFinder) -> str:
        """Why the target `name` could be imported without us."""
        others = "other modules may hold its originals"
        if name in self._begun_before:
            return f"its import had begun when turbo_physai.apply() was called: {others}"
        if not self.has_started:
            return f"it was imported before turbo_physai.apply() was called: {others}"
        if finder.displaced_by is None:
            return f"it was imported without turbo_physai's finder: {others}"
        found_by = f"{finder.displaced_by}, a finder in front of turbo_physai's on sys.meta_path"
        return f"it was found by {found_by}: {others}"

    def _watch(self, name: str, module: object) -> None:
        """A lazy module is loaded later, by the loader that its spec holds now."""
        if name not in self._followed:
            self._followed.add(name)
            watch(object.__getattribute__(module, "__spec__"), self._events)

    def _import_has_ended(self, name: str) -> None:
        self._followed.discard(name)
        # The garbage collector may have ended the import's lock while this thread held ours: then
        # nothing foreign may run, and the caller is in the middle of things.
        if self._records.lock._is_owned():  # type: ignore[attr-defined]
            return
        # Nothing that is raised here reaches the program. The report has it, and strict mode ends
        # the process at the next change, or sets its exit code.
        with contextlib.suppress(OptimizationRollbackError, SystemExit):
            self._settle()

    def _acts_on(self, member: MemberRecord, module: str) -> bool:
        return any(self._modules.holder(site) == module for site in member.sites)

    def _check_place(self, finder: WatchingFinder) -> None:
        """Returns the finder to the front of `sys.meta_path`; warns where that is not possible."""
        finder.return_to_front()
        if finder.is_removed:
            reason = (
                "turbo_physai's finder was removed from sys.meta_path: "
                "modules that are imported from now on are not patched"
            )
        elif finder.is_contested:
            reason = (
                f"{finder.displaced_by} keeps putting itself in front of turbo_physai's finder: "
                "modules that it finds are patched late or not at all"
            )
        else:
            return
        self._warn("finder", "sys.meta_path", reason, self._records.groups.values())

    def _warn(self, check: str, subject: str, reason: str, groups: Iterable[GroupRecord]) -> None:
        """Adds a warning to each Group that may still be bound, and logs it if it is new."""
        found = Check(check, "warning", subject, reason=reason)
        with self._records.lock:
            new = [g for g in groups if g.is_open and found not in g.prepared.checks]
            for group in new:
                self._records.add_check(group, found)
        if new and self.has_started and subject not in self._begun_before:
            ids = ", ".join(group.id for group in new)
            warn(f"{subject}: {reason} (Groups: {ids})")
