"""Counts the optimizer steps of this process, and ends it after the last one that was asked for.

A step is a call of `step` of the first optimizer that takes one: a program with several, such as
one for a generator and one for a discriminator, makes one step each time that it comes back to the
first. With gradient accumulation all passes up to the optimizer's step belong to it. A step that a
`GradScaler` leaves out, because gradients were infinite, counts: its passes have run.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final

# Seconds in which a program may end, after it was told to.
_PATIENCE: Final = 60.0


class Steps:
    """Counts steps.

    Args:
        last: the step after which the process ends, counted from 1.
        ended: called at the end of each step, with its number, the device of the parameters and
            the frame that called the optimizer.
        finish: called before the process ends.

    Attributes:
        count: how many have ended.
        skipped: the steps that a GradScaler left out.
        hook: torch's handle of the hook, once it is installed.
    """

    def __init__(
        self,
        last: int,
        ended: Callable[[int, Any, FrameType | None], object],
        finish: Callable[[], object],
    ) -> None:
        self._last = last
        self._ended = ended
        self._finish = finish
        self.count = 0
        self.skipped: list[int] = []
        self._counted: Callable[[], Any] = lambda: None
        self._wrapper: CodeType | None = None
        self.hook: Any = None

    def install(self) -> None:
        """Hooks the optimizers; torch must have been imported up to them."""
        from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

        # Of the function that torch puts around each class's `step`.
        codes = (
            c for c in Optimizer.profile_hook_step.__code__.co_consts if isinstance(c, CodeType)
        )
        self._wrapper = next((code for code in codes if code.co_name == "wrapper"), None)
        self.hook = register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        frame = sys._getframe(1)
        if not self._is_nested(optimizer, frame):
            self._end_of(optimizer, frame.f_back)

    def _is_nested(self, optimizer: Any, frame: FrameType) -> bool:
        """Whether this is a class's `step` which that of a subclass has called."""
        above = frame.f_back
        while above is not None:
            if above.f_code is self._wrapper and above.f_locals.get("self") is optimizer:
                return True
            above = above.f_back
        return False

    def install_scaler(self) -> None:
        """Notices the steps that a GradScaler leaves out; its module must have been imported."""
        from torch.amp.grad_scaler import GradScaler

        scaler: Any = GradScaler
        step = scaler.step

        @functools.wraps(step)
        def counted(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = self.count
            result = step(scaler, optimizer, *args, **kwargs)
            if self.count == before and self._is_counted(optimizer):
                self.skipped.append(before + 1)
                self._end_of(optimizer, sys._getframe(1))
            return result

        scaler.step = counted

    def _is_counted(self, optimizer: Any) -> bool:
        first = self._counted()
        return first is None or first is optimizer

    def _end_of(self, optimizer: Any, frame: FrameType | None) -> None:
        if not self._is_counted(optimizer):
            return
        self._counted = weakref.ref(optimizer)
        if self.count >= self._last:  # the program has caught the SystemExit
            _end_now()
        self.count += 1
        self._ended(self.count, _device_of(optimizer), frame)
        if self.count == self._last:
            self._finish()
            _end()


def _device_of(optimizer: Any) -> Any:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            return parameter.device
    from torch import device

    return device("cpu")


def _end() -> None:
    """Ends the process with 0, in the order in which a program ends by itself."""
    if threading.current_thread() is not threading.main_thread():
        _end_now()  # SystemExit would end this thread only
    timer = threading.Timer(_PATIENCE, _end_now)
    timer.daemon = True
    timer.start()
    raise SystemExit(0)


def _end_now() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)
