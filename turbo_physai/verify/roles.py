"""What a comparison is running now: the replacement or the original.

Replaced functions call one another. Inside the original of one of them the others run their
originals too, so that the comparison is with the code that nobody has changed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final, Literal

Role = Literal["replacement", "original"]

_lock: Final = threading.Lock()
_held: tuple[Role, int] | None = None


def current() -> Role | None:
    """What this thread runs for a comparison; None if that is the program itself."""
    held = _held
    if held is None:
        return None
    role, thread = held
    return role if threading.get_ident() == thread or _is_of_autograd() else None


def _is_of_autograd() -> bool:
    """Whether Python did not start this thread, as those that run a backward on a GPU."""
    me = threading.get_ident()
    mine = next((each for each in threading.enumerate() if each.ident == me), None)
    return mine is None or type(mine).__name__ == "_DummyThread"


@contextlib.contextmanager
def exclusive() -> Iterator[bool]:
    """Whether a comparison may begin: one at a time, and nobody waits."""
    mine = _lock.acquire(blocking=False)
    try:
        yield mine
    finally:
        if mine:
            _lock.release()


@contextlib.contextmanager
def playing(role: Role) -> Iterator[None]:
    """Makes it the current one."""
    global _held
    _held = role, threading.get_ident()
    try:
        yield
    finally:
        _held = None
