"""What the engine tells of its work, and to whom."""

from __future__ import annotations

from typing import Protocol

from turbo_physai.errors import OptimizationRollbackError


class Listener(Protocol):
    """Hears of every change of the records. The engine calls it without holding its lock."""

    def changed(self, *, settled: bool) -> None:
        """Something has changed. `settled` is False in the middle of an import, when more is about
        to come. May raise SystemExit, to end the process."""

    def save(self) -> None:
        """A detail has changed that nothing depends on."""

    def rollback_error(self, message: str) -> OptimizationRollbackError:
        """The error that leaves the model's import when restoring has failed."""
