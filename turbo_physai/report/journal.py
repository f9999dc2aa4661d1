"""The journal: the report of a process as a file that is valid at every moment."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
from pathlib import Path
from typing import Any, Final

REPORT_DIR_VARIABLE: Final = "TURBO_PHYSAI_REPORT_DIR"
PATTERN: Final = "report-*.json"


class Journal:
    """The file of one process's report."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: OSError | None = None

    def write(self, report: dict[str, Any]) -> None:
        """Replaces the file. A full disk must not stop a training, so an error is kept in `error`
        instead."""
        # Written beside the file and renamed over it: a reader, or a kill in the middle, sees the
        # old state or the new one, never half of either.
        draft = self.path.with_suffix(".tmp")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_text(json.dumps(report, indent=1, default=str) + "\n", encoding="utf-8")
            draft.replace(self.path)
        except OSError as error:
            self.error = error
            with contextlib.suppress(OSError):
                draft.unlink()


def place(run_id: str, report_dir: str | os.PathLike[str] | None = None) -> Path:
    """The journal's path for this process: in `report_dir`, else in the folder that the variable
    TURBO_PHYSAI_REPORT_DIR names, else in one of the system's temporary folder."""
    folder = report_dir or os.environ.get(REPORT_DIR_VARIABLE)
    if not folder:
        folder = Path(tempfile.gettempdir()) / f"turbo_physai-{os.getuid()}" / run_id
    # The run is part of the name: a container that starts again has its host and pid once more.
    name = PATTERN.replace("*", f"{run_id}-{socket.gethostname()}-{os.getpid()}")
    return Path(folder).absolute() / name
