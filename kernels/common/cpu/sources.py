"""What the compiled library was made from, so that one that is older than its sources is not used.

`setup.py` runs this file by itself, without the package."""

from __future__ import annotations

import hashlib
from pathlib import Path


def digest(kernels: Path) -> str | None:
    """The SHA-256 of all C++ sources below a folder; None where there are none, as in a wheel."""
    files = sorted(file for kind in ("*.cpp", "*.h") for file in kernels.rglob(kind))
    found = hashlib.sha256()
    for file in files:
        found.update(f"{file.relative_to(kernels).as_posix()}\0".encode())
        found.update(file.read_bytes())
    return found.hexdigest() if files else None
