"""torch and numpy, where the process has them."""

from __future__ import annotations

import sys
from typing import Any


def torch() -> Any | None:
    """The module; None where it is not loaded, or is only being loaded."""
    return _loaded("torch", "compiler")


def numpy() -> Any | None:
    """The module; None where it is not loaded, or is only being loaded."""
    return _loaded("numpy", "random")


def _loaded(name: str, late: str) -> Any | None:
    module = sys.modules.get(name)
    return module if module is not None and hasattr(module, late) else None
