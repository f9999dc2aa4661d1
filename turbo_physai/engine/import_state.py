"""What the import system knows of a module: whether its import is under way, and when that ends."""

from __future__ import annotations

import importlib
import sys
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def is_lazy(module: Any) -> bool:
    """Whether `module` waits for its first use, by `importlib.util.LazyLoader`."""
    return type(module).__name__ == "_LazyModule" and type(module).__module__ == "importlib.util"


def is_unfinished(module: Any) -> bool:
    """Whether the body of `module` has yet to end, or to begin, asked without touching it."""
    if is_lazy(module):
        return True
    try:
        spec = object.__getattribute__(module, "__spec__")
    except AttributeError:
        return False
    return bool(getattr(spec, "_initializing", False))


def is_reloading(name: str) -> bool:
    """Whether `importlib.reload` runs the body of the module `name` now."""
    return name in getattr(importlib, "_RELOADING", ()) and _lock(name) is not None


def is_orphaned(name: str) -> bool:
    """Whether the module `name` was being imported by another thread when this process was forked:
    its lock stays locked, and importing it would wait for ever."""
    owner = getattr(_lock(name), "owner", None)
    return owner is not None and owner not in sys._current_frames()


def when_finished(name: str, act: Callable[[], object]) -> bool:
    """Calls `act` once the import of the module `name` that is under way has ended.

    The import system tells nobody of the end of an import that was not watched from its start; but
    it keeps a lock for as long as the import lasts, and the end of the lock can be observed. False
    if there is no such lock.
    """
    lock = _lock(name)
    if lock is not None:
        weakref.finalize(lock, act).atexit = False
    return lock is not None


def _lock(name: str) -> Any:
    known = getattr(importlib._bootstrap, "_module_locks", {}).get(name)
    return None if known is None else known()
