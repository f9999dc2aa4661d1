"""Strict mode: a run in which a Group was not applied must not pass for one in which it was."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Final

from turbo_physai.report.execution import GroupState

if TYPE_CHECKING:
    from collections.abc import Callable

    from turbo_physai.report.report import OptimizationReport

EXIT_CODE: Final = 3

_MISSED: Final = (
    GroupState.BLOCKED,
    GroupState.ROLLED_BACK,
    GroupState.NOT_STARTED,
    GroupState.FAILED,
)


class Strict:
    """Ends the process once it is certain that a Group that should be applied will not be.

    Only where a report is left: workers and helpers end as they would without us.
    """

    def __init__(self, report: OptimizationReport) -> None:
        self._report = report
        self._said = False
        self._exiting = False

    def enforce(self) -> None:
        """Raises SystemExit with the code 3 if a Group was missed."""
        # A failed rollback has an error of its own, which is on its way already.
        missed = self._missed(except_for=GroupState.FAILED)
        if missed and not self._exiting:
            self._say(missed)
            raise SystemExit(EXIT_CODE)

    def end(self, close: Callable[[], None]) -> None:
        """For `atexit`: calls `close`, which settles the report, and sets the exit code.

        A program that ends with an exception of its own has said enough, and keeps its code.
        """
        self._exiting = True
        close()
        missed = self._missed()
        if not missed:
            return
        self._say(missed)
        if getattr(sys, "last_value", None) is None:
            # Nothing but _exit can change the code now, so what would still follow is done here.
            logging.shutdown()
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            os._exit(EXIT_CODE)

    def _missed(self, except_for: GroupState | None = None) -> list[str]:
        if not self._report.leaves_journal:
            return []
        return [
            f"{id_} is {group.state.value}: {group.reason}"
            for id_, group in self._report.execution.items()
            if group.state in _MISSED and group.state is not except_for
        ]

    def _say(self, missed: list[str]) -> None:
        if not self._said and sys.stderr is not None:
            self._said = True
            print(f"turbo_physai: strict mode: {'; '.join(missed)}", file=sys.stderr, flush=True)
