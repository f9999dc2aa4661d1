"""Claims that cannot be lost.

A flag that a `finally` clears stays set when an interrupt arrives before the `try` or inside the
`finally`, and in the child of a fork, where the thread that set it does not exist. So a claim is
not a flag: it names the function call that holds it, and is free once that call is on no stack.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


class Claim:
    """Work that one function call at a time may do. Whoever uses it holds the report's lock."""

    __slots__ = ("_frame",)

    def __init__(self) -> None:
        self._frame: FrameType | None = None

    def take(self, frame: FrameType) -> None:
        """Gives the claim to the call `frame`, until that ends or the claim is released."""
        self._frame = frame

    def release(self) -> None:
        """Frees the claim early, and with it the frame's local variables."""
        self._frame = None

    @property
    def is_held(self) -> bool:
        return self._frame is not None and _is_running(self._frame)

    @property
    def was_lost(self) -> bool:
        """Whether the call that held it ended without releasing it."""
        return self._frame is not None and not _is_running(self._frame)


def _is_running(frame: FrameType) -> bool:
    # After a fork, the only thread listed is the one that forked.
    for innermost in sys._current_frames().values():
        each: FrameType | None = innermost
        while each is not None:
            if each is frame:
                return True
            each = each.f_back
    return False
