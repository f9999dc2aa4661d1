"""What is wrong with a configuration is found before anything is started, and said at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

CONFIG_ERROR: Final = 2


def require(*steps: Callable[[], object]) -> None:
    """Takes all steps, even after one has failed; if any has, says everything on stderr and exits
    with the code 2."""
    faults: list[str] = []
    for step in steps:
        try:
            step()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            faults += [line for line in _lines(error) if line not in faults]
    if faults:
        print("\n".join(f"turbo_physai: {fault}" for fault in faults), file=sys.stderr)
        sys.exit(CONFIG_ERROR)


def describe(error: BaseException) -> str:
    """What went wrong, in one line."""
    return "; ".join(_lines(error))


def _lines(error: BaseException) -> list[str]:
    """One line for each fault that an error of ours carries; for any other error one line with its
    type and the place that raised it."""
    try:
        lines = str(error).splitlines()
    except Exception:
        lines = []
    if type(error).__module__.startswith("turbo_physai."):
        return lines
    return [f"{type(error).__name__}: {' '.join(lines)}{_place(error)}"]


def _place(error: BaseException) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None:
        return ""
    return f" ({os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno})"  # noqa: PTH119
