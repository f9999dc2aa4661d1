"""Loads the compiled CPU kernels, a plain shared library that the build puts into `kernels`."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from .sources import digest

_FILE = Path(__file__).parents[2] / "libturbo_physai_cpu.so"


def library() -> ctypes.CDLL | None:
    """The library, or None where it is missing; `why_not` then says why."""
    return _load()[0]


def why_not() -> str | None:
    """Why there is no library, or None when there is one."""
    return _load()[1]


@cache
def _load() -> tuple[ctypes.CDLL | None, str | None]:
    if not _FILE.exists():
        return None, (
            f"{_FILE.name} was not built: install again with a C++17 compiler (g++ or clang++)"
        )
    try:
        loaded = ctypes.CDLL(str(_FILE))
    except OSError as error:
        return None, f"{_FILE.name} does not load: {error}"
    if not _is_of_these_sources(loaded):
        # Its functions may take other arguments, and would crash.
        return None, f"{_FILE.name} was built from other sources: install again to build it anew"
    loaded.turbo_physai_use_openmp.argtypes = [ctypes.c_void_p]
    loaded.turbo_physai_use_openmp(_gomp_parallel())
    return loaded, None


def _is_of_these_sources(loaded: ctypes.CDLL) -> bool:
    expected = digest(_FILE.parent)
    if expected is None:
        return True
    try:
        made_from = loaded.turbo_physai_sources
    except AttributeError:
        return False
    made_from.restype = ctypes.c_char_p
    return bool(made_from().decode() == expected)


def _gomp_parallel() -> ctypes.c_void_p | None:
    """The entry of the OpenMP runtime that torch has loaded, so that both share its threads."""
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p)
    except AttributeError:
        return None
