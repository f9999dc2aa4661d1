"""Strict mode: a run in which a Group was not applied must not pass for one in which it was."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from turbo_physai.engine.records import GroupState
from turbo_physai.process.messages import has_logging
from turbo_physai.report.missed import Missed

if TYPE_CHECKING:
    from collections.abc import Callable

    from turbo_physai.report.report import OptimizationReport

EXIT_CODE: Final = 3


class Strict:
    """Ends the process once it is certain that a Group that should be applied will not be.

    Only where a report is left: workers and helpers end as they would without us.
    """

    def __init__(self, report: OptimizationReport) -> None:
        self._report = report
        self._missed = Missed(report)
        self._said = False
        self._exiting = False

    def changed(self) -> None:
        """To be called after every change of the report: raises SystemExit with the code 3 if a
        Group was missed."""
        # A failed rollback has an error of its own, which is on its way already.
        states = self._report.execution
        is_certain = any(states[id_].state is not GroupState.FAILED for id_ in self._missed.find())
        if is_certain and not self._exiting:
            self._say()
            raise SystemExit(EXIT_CODE)

    def end(self, close: Callable[[], None]) -> None:
        """For `atexit`: calls `close`, which settles the report, and sets the exit code.

        A program that ends with an exception of its own has said enough, and keeps its code.
        """
        self._exiting = True
        close()
        if not self._missed.find():
            return
        self._say()
        if getattr(sys, "last_value", None) is None:
            # Nothing but _exit can change the code now, so what would still follow is done here.
            if has_logging():
                import logging

                logging.shutdown()
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            os._exit(EXIT_CODE)

    def _say(self) -> None:
        if not self._said and sys.stderr is not None:
            self._said = True
            text = "; ".join(f"{id_} is {why}" for id_, why in self._missed.find().items())
            print(f"turbo_physai: strict mode: {text}", file=sys.stderr, flush=True)
