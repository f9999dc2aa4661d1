"""Groups that were to be applied and were not: each is one warning in the log.

A program that trains on the original code although it was asked not to must say so without being
asked. Only processes that leave a report do: their workers and helpers are silent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from turbo_physai.engine.records import GroupState, MemberState
from turbo_physai.process.messages import warn

if TYPE_CHECKING:
    from turbo_physai.engine.records import GroupRecord
    from turbo_physai.report.readable import Readable

# Nothing is certain of these yet, or nothing was wanted.
_NOT_MISSED: Final = (GroupState.PENDING, GroupState.SKIPPED)


def shortfall(group: GroupRecord) -> str:
    """What a Group lacks: to be applied, or to be served by a fused backend. Empty if nothing."""
    if group.state is GroupState.APPLIED:
        slow = [m.backend for m in group.members if m.backend is not None and not m.backend.fused]
        served = sorted({f"{backend.name} serves it: {backend.reason}" for backend in slow})
        return f"applied, but not fused: {'; '.join(served)}" if served else ""
    waiting = [m.target for m in group.members if m.state is MemberState.WAITING]
    is_idle = group.state is GroupState.PENDING and not group.reason
    reason = f"not imported yet: {', '.join(waiting)}" if is_idle else group.reason
    return f"not applied ({group.state.value}): {reason}"


class Missed:
    """What each Group of a report lacks that was to be applied and will not be, or that no fused
    backend serves."""

    def __init__(self, report: Readable) -> None:
        self._report = report
        self._revision = -1
        self._judged: dict[str, GroupState] = {}
        self._found: dict[str, str] = {}

    def find(self) -> dict[str, str]:
        """By id, as far as that is certain now; nothing where this process leaves no report."""
        if not self._report.leaves_journal:
            return {}
        if self._revision == self._report.revision:
            return self._found
        self._revision = self._report.revision
        for id_, group in self._report.execution.items():
            if group.state is not self._judged.get(id_):
                self._judged[id_] = group.state
                why = "" if group.state in _NOT_MISSED else shortfall(group)
                self._found.pop(id_, None)
                if why:
                    self._found[id_] = why
        return self._found


class MissedWarnings:
    """Logs each of them once, as soon as it is certain.

    Args:
        report: the report to look at.
        expects_imports: whether it is worth a warning that targets were never imported. It is not
            where nobody has named a config, and Groups for what most programs lack are applied.
    """

    def __init__(self, report: Readable, *, expects_imports: bool = True) -> None:
        self._report = report
        self._expects_imports = expects_imports
        self._missed = Missed(report)
        self._said: set[str] = set()

    def changed(self) -> None:
        """To be called after every change of the report."""
        with self._report.lock:
            found = self._missed.find()
            new = {id_: why for id_, why in found.items() if id_ not in self._said}
            self._said.update(new)
            if not self._expects_imports:
                new = {id_: why for id_, why in new.items() if not self._is_idle(id_)}
        for id_, why in new.items():
            # A handler of the program's that raises must not break the import that runs now.
            with contextlib.suppress(Exception):
                warn(f"the Group {id_} is {why}. {self._advice(id_)}")

    def end(self, close: Callable[[], None]) -> None:
        """For `atexit`: `close` settles the report."""
        close()

    def _is_idle(self, id_: str) -> bool:
        return self._report.execution[id_].state is GroupState.NOT_STARTED

    def _advice(self, id_: str) -> str:
        prepared = self._report.prepared_execution
        failed = prepared.blocking(prepared.groups[id_])
        leave_out = f"leave it out with --disable-group {id_}"
        if failed and all(check.overridable for check in failed):
            return f"If that is fine, let it through with --force-group {id_}, else {leave_out}."
        return f"If it is not needed, {leave_out}."
