"""Groups that were applied and never ran: mostly a captured reference, or another code path."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from turbo_physai.process.messages import warn

if TYPE_CHECKING:
    from turbo_physai.report.readable import Readable


def warn_of_unused(report: Readable) -> None:
    """Logs them in one line, when the process ends. Not where an exception has ended it, nor where
    it leaves no report: what did not run there tells nothing."""
    if getattr(sys, "last_value", None) is not None or not report.leaves_journal:
        return
    with report.lock:
        found = {id_: group.unused for id_, group in report.execution.items()}
    unused = [f"{id_} ({why})" for id_, why in found.items() if why]
    if unused:
        warn(
            f"applied, but never ran: {', '.join(unused)}. Calls in worker processes and inside "
            "torch.compile are not counted"
        )
