"""The environment of this process, as far as it can be told without importing anything heavy."""

from __future__ import annotations

import os
import platform
import socket
import sys
from typing import TYPE_CHECKING, Any, Final

from turbo_physai.evidence.packages import version
from turbo_physai.process.variables import working_directory

if TYPE_CHECKING:
    from collections.abc import Iterable

PACKAGES: Final = ("turbo_physai", "torch", "triton")


def snapshot(packages: Iterable[str] = ()) -> dict[str, Any]:
    """Versions, platform and process; `packages` are distributions to look up besides our own."""
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "directory": working_directory(),
        "arguments": list(getattr(sys, "argv", ())),
        "packages": {name: version(name) for name in dict.fromkeys((*PACKAGES, *packages))},
    }
