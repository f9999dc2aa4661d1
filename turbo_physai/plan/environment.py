"""The environment of this process, as far as it can be told without importing anything heavy."""

from __future__ import annotations

import os
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
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "platform": _platform(),
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "directory": working_directory(),
        "arguments": list(getattr(sys, "argv", ())),
        "packages": {name: version(name) for name in dict.fromkeys((*PACKAGES, *packages))},
    }


def _platform() -> str:
    """What `platform.platform` says of a Linux, which reads the interpreter's file for it."""
    system = os.uname()
    try:
        library = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, OSError, ValueError):  # not of GNU
        library = ""
    parts = (system.sysname, system.release, system.machine, library and f"with-{library}")
    return "-".join(filter(None, parts)).replace(" ", "")
