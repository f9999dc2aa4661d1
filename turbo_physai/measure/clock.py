"""The time of steps: on the GPU's own clock where the parameters are there, so that nobody waits
for the device in the middle of a training."""

from __future__ import annotations

import time
from typing import Any


class Clock:
    """Marks the ends of steps."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._events: list[Any] = []
        self.device = "cpu"
        self.device_name = ""

    def mark(self, device: Any) -> None:
        """A step has ended, whose parameters are on `device`, a torch.device."""
        self._times.append(time.perf_counter())
        self.device = str(device)
        if device.type == "cuda":
            import torch

            cuda: Any = torch.cuda
            event = cuda.Event(enable_timing=True)
            event.record(cuda.current_stream(device))
            self._events.append(event)
            self.device_name = cuda.get_device_name(device)

    def seconds(self) -> list[float]:
        """From the end of each step to that of the next. Waits for the device."""
        if self._events and len(self._events) == len(self._times):
            self._events[-1].synchronize()
            pairs = zip(self._events, self._events[1:], strict=False)
            return [first.elapsed_time(second) / 1000 for first, second in pairs]
        pairs_ = zip(self._times, self._times[1:], strict=False)
        return [second - first for first, second in pairs_]
