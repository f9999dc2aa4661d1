"""Puts the parts together in a process that is measured."""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from turbo_physai.measure.clock import Clock
from turbo_physai.measure.losses import BackwardLosses, Losses, NamedLosses
from turbo_physai.measure.request import PATTERN, SCHEMA, Request
from turbo_physai.measure.steps import Steps
from turbo_physai.measure.watch import on_import
from turbo_physai.process import ranks
from turbo_physai.process.messages import warn

if TYPE_CHECKING:
    from turbo_physai.report import OptimizationReport


def start(report: OptimizationReport) -> None:
    """Measures this process as its environment asks, if it trains, from the moment in which it
    imports torch's optimizers.

    Args:
        report: the report of this process.

    Raises:
        OptimizationConfigError: the environment does not hold a request.
    """
    request = Request.of_environment()
    if request is None:
        return
    measured = _Measured(request, report)
    on_import("torch.optim.optimizer", measured.install)
    on_import("torch.amp.grad_scaler", measured.install_scaler)
    atexit.register(measured.finish)


class _Measured:
    """What is measured in one process, until it is written."""

    def __init__(self, request: Request, report: OptimizationReport) -> None:
        self._request = request
        self._report = report
        self._pid: int | None = None
        self._is_written = False
        self._clock = Clock()
        self._losses: Losses = NamedLosses(request.loss) if request.loss else BackwardLosses()
        self._values: list[Any] = []
        self._steps = Steps(request.last, self._ended, self.finish)

    def install(self) -> None:
        self._steps.install()
        self._losses.install()

    def install_scaler(self) -> None:
        self._steps.install_scaler()
        self._losses.install_scaler()

    def _ended(self, number: int, device: Any, frame: FrameType | None) -> None:
        self._pid = os.getpid()
        self._clock.mark(device)
        self._values.append(self._losses.take(frame))

    def finish(self) -> None:
        """Writes the file of this rank, once; a process that made no step leaves none, and neither
        does a forked child of one that has."""
        if self._is_written or os.getpid() != self._pid:
            return
        self._is_written = True
        try:
            self._write(self._to_dict())
        except OSError as error:
            warn(f"what was measured is not kept: {error}")

    def _to_dict(self) -> dict[str, Any]:
        import torch

        from turbo_physai.measure.memory import peak_bytes

        rank, world_size = _rank()
        return {
            "schema_version": SCHEMA,
            "run_id": self._report.run_id,
            "rank": rank,
            "world_size": world_size,
            "torch": torch.__version__,
            "device": self._clock.device,
            "device_name": self._clock.device_name,
            "warmup": self._request.warmup,
            # The first interval is that of the second step.
            "seconds": self._clock.seconds()[self._request.warmup - 1 :],
            "losses": [None if value is None else float(value) for value in self._values],
            "skipped_steps": self._steps.skipped,
            "peak_bytes": peak_bytes(),
            "groups": {
                id_: {
                    "state": group.state.value,
                    "reason": group.reason,
                    "compatibility": group.prepared.declared.compatibility,
                }
                for id_, group in self._report.execution.items()
            },
        }

    def _write(self, content: dict[str, Any]) -> None:
        name = PATTERN.replace("*", f"{content['rank']}-{os.uname().nodename}-{os.getpid()}")
        file = Path(self._request.folder) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{name}")
        draft.write_text(json.dumps(content), encoding="utf-8")
        draft.replace(file)


def _rank() -> tuple[int, int]:
    """The rank and the number of ranks. A program may have told them to torch alone."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return ranks.rank(), ranks.world_size()
