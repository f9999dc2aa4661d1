"""What is wrong with a configuration is found before anything is started, and said at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from turbo_physai.errors import TurboPhysAIError

CONFIG_ERROR: Final = 2


def require(*steps: Callable[[], object]) -> None:
    """Takes all steps, even after one has found something wrong; if any has, says everything on
    stderr and exits with the code 2."""
    faults: list[str] = []
    for step in steps:
        try:
            step()
        except TurboPhysAIError as error:
            faults += [line for line in str(error).splitlines() if line not in faults]
    if faults:
        print("\n".join(f"turbo_physai: {fault}" for fault in faults), file=sys.stderr)
        sys.exit(CONFIG_ERROR)
