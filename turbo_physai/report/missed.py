"""Groups that were to be applied and were not: each is one warning in the log.

A program that trains on the original code although it was asked not to must say so without being
asked. Only processes that leave a report do: their workers and helpers are silent.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from turbo_physai.report.execution import GroupState

if TYPE_CHECKING:
    from turbo_physai.report.execution import GroupExecution
    from turbo_physai.report.report import OptimizationReport

MISSED: Final = (
    GroupState.BLOCKED,
    GroupState.ROLLED_BACK,
    GroupState.NOT_STARTED,
    GroupState.FAILED,
)

logger = logging.getLogger("turbo_physai")


def missed(report: OptimizationReport) -> dict[str, GroupExecution]:
    """The Groups that were to be applied and will not be, where this process leaves a report."""
    if not report.leaves_journal:
        return {}
    return {id_: group for id_, group in report.execution.items() if group.state in MISSED}


class MissedWarnings:
    """Logs each of them once, as soon as it is certain."""

    def __init__(self, report: OptimizationReport) -> None:
        self._report = report
        self._said: set[str] = set()

    def changed(self) -> None:
        """To be called after every change of the report."""
        with self._report.lock:
            new = {id_: g for id_, g in missed(self._report).items() if id_ not in self._said}
            self._said.update(new)
        for id_, group in new.items():
            # A handler of the program's that raises must not break the import that runs now.
            with contextlib.suppress(Exception):
                logger.warning("%s", self._line(id_, group))

    def end(self, close: Callable[[], None]) -> None:
        """For `atexit`: `close` settles the report."""
        close()

    def _line(self, id_: str, group: GroupExecution) -> str:
        return (
            f"turbo_physai: the Group {id_} is not applied ({group.state.value}): {group.reason}. "
            f"{self._advice(id_)}"
        )

    def _advice(self, id_: str) -> str:
        prepared = self._report.prepared_execution
        failed = prepared.blocking(prepared.groups[id_])
        leave_out = f"leave it out with --disable-group {id_}"
        if failed and all(check.overridable for check in failed):
            return f"If that is fine, let it through with --force-group {id_}, else {leave_out}."
        return f"If it is not needed, {leave_out}."
