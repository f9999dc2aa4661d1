"""Which of the many processes of a launch leaves a report.

A launch is a tree: a launcher starts ranks, ranks start workers and helpers. Each of these may be
activated, yet what a run did is told by its ranks alone.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from turbo_physai.process import ranks, settings
from turbo_physai.process.command import Command
from turbo_physai.process.kind import TRAINING, kind_of


class ProcessRole:
    """Whether the process that creates it is one of those that leave a report: a rank, and not a
    launcher, worker or helper."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._command = Command.of_this_process()
        self._parent = settings.PARENT_RANK.text()
        by_environment = settings.OPTIMIZATION_CONFIG.text() is not None
        self._trains = not by_environment or kind_of(self._command, self._parent) in TRAINING
        os.environ[settings.PARENT_RANK.variable] = _rank_or_none()

    @property
    def is_this_process(self) -> bool:
        """False in a forked child."""
        return os.getpid() == self._pid

    def reports(self, has_acted: bool) -> bool:
        """Whether this process leaves a report, as far as can be told now.

        A forked child and a launcher never do. A worker of `multiprocessing` does if it has a rank
        that its parent has not. A helper - a process that shares the rank of an activated one above
        it - does from the moment in which a Group has acted in it, and so does one that is
        activated by the environment without being a training: a tool, or code after ``-c``. Any
        other process does from its start.
        """
        if not self.is_this_process or self._command.is_launcher:
            return False
        rank = _rank_or_none()
        if self._command.is_worker or _is_child_of_multiprocessing():
            return rank != (self._parent or _NO_RANK)
        return has_acted or (self._trains and rank != self._parent)


_NO_RANK: Final = "none"


def _rank_or_none() -> str:
    rank = ranks.stated_rank()
    return _NO_RANK if rank is None else str(rank)


def _is_child_of_multiprocessing() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
