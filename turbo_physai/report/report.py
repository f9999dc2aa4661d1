"""The OptimizationReport: a live account of what was decided and what happened."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final, Protocol

from turbo_physai.engine.records import GroupState, MemberState
from turbo_physai.errors import OptimizationNotAppliedError, OptimizationRollbackError
from turbo_physai.report.missed import MissedWarnings, shortfall
from turbo_physai.report.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from turbo_physai.config import OptimizationConfig
    from turbo_physai.engine.records import GroupRecord, Records
    from turbo_physai.plan import PreparedExecution
    from turbo_physai.process.role import ProcessRole
    from turbo_physai.report.journal import Journal

SCHEMA: Final = "turbophysai/report/v1"

# The states in which a Group is for as long as none of its targets was imported.
IDLE: Final = (GroupState.PENDING, GroupState.SKIPPED, GroupState.NOT_STARTED)

# Seconds after which the journal is written although an import is under way.
_PATIENCE: Final = 1.0


class Observer(Protocol):
    """What judges a report."""

    def changed(self) -> None:
        """The report has changed."""

    def end(self, close: Callable[[], None]) -> None:
        """The process ends; `close` settles the report."""


class OptimizationReport:
    """What was decided for each Group and what then happened; it stays live until it is `final`.

    Attributes:
        run_id: the id of the launch, one for all of its ranks.
        optimization_config: the config, with everything that it extends.
        prepared_execution: environment, checks and decisions; completed as evidence arrives.
        execution: what happened, per Group id.
        optimization_config_path: absolute path of the config file.
        runtime_config_path: path of the RuntimeConfig that a launcher applied, or None.
        journal: the file that holds this report.
        observer: judges the report after every change, and may raise; for strict mode.
    """

    def __init__(
        self,
        run_id: str,
        optimization_config: OptimizationConfig,
        records: Records,
        journal: Journal,
        role: ProcessRole,
        runtime_config_path: str | None = None,
    ) -> None:
        self.run_id = run_id
        self.optimization_config = optimization_config
        self.prepared_execution: PreparedExecution = records.prepared
        self.execution: Mapping[str, GroupRecord] = records.groups
        self.optimization_config_path: Path = optimization_config.path
        self.runtime_config_path = runtime_config_path
        self.started_at = datetime.now(timezone.utc).isoformat()
        self.journal = journal
        self.observer: Observer = MissedWarnings(self)
        head = {
            "schema_version": SCHEMA,
            "run_id": run_id,
            "started_at": self.started_at,
            "optimization_config_path": str(self.optimization_config_path),
            "runtime_config_path": runtime_config_path,
        }
        self._view = View(records, head, optimization_config)
        self._records = records
        self._role = role
        self._final = False
        self._callbacks: list[Callable[[OptimizationReport], object]] = []
        self._has_acted = False
        self._written: tuple[int, bool] | None = None
        self._written_at = 0.0

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Guards the records that the report shows; the engine holds it while it changes them."""
        return self._records.lock

    @property
    def revision(self) -> int:
        """Counts the changes of the records."""
        return self._records.revision

    @property
    def final(self) -> bool:
        """Whether every declared target of every Group to be applied was loaded, or the process
        has ended."""
        return self._final

    @property
    def summary(self) -> dict[str, int]:
        """How many Groups are in each state."""
        states = Counter(group.state for group in self.execution.values())
        return {state.value: states[state] for state in GroupState}

    @property
    def leaves_journal(self) -> bool:
        """Whether this process is one of those by which a run is judged, as far as can be told now:
        its ranks, but not their workers and helpers."""
        self._has_acted = self._has_acted or any(map(_has_acted, self.execution.values()))
        return self._role.reports(self._has_acted)

    def require(self, *ids: str) -> None:
        """Raises unless Groups are applied: these, or every one that was to be applied.

        For an acceptance check, after the model was imported: before that, Groups are pending, and
        the error says what has not been imported yet.

        Raises:
            OptimizationNotAppliedError: naming each Group that is not applied, or that no fused
                backend serves, with the reason.
            ValueError: the config lists no Group of that id.
        """
        with self.lock:
            for id_ in ids:
                if id_ not in self.execution:
                    raise ValueError(f"found {id_!r}; accepted: {', '.join(self.execution)}")
            wanted = ids or [
                id_ for id_, g in self.execution.items() if g.state is not GroupState.SKIPPED
            ]
            found = {id_: shortfall(self.execution[id_]) for id_ in wanted}
        not_applied = {id_: why for id_, why in found.items() if why}
        if not_applied:
            raise OptimizationNotAppliedError(not_applied, self)

    def on_final(self, callback: Callable[[OptimizationReport], object]) -> None:
        """Calls `callback(report)` once: when the report becomes final, or now if it is.

        An Exception that it raises is logged. Anything else, such as SystemExit, leaves the model's
        import statement in which the report became final.
        """
        with self.lock:
            if not self._final:
                self._callbacks.append(callback)
                return
        self._call(callback)

    # What the engine tells.

    def changed(self, *, settled: bool = True) -> None:
        """Takes note of a change: writes the journal and, with the last Group settled, finishes.

        Args:
            settled: False in the middle of an import, when more is about to come.
        """
        if not self._role.is_this_process:
            return  # what a forked child does is no part of its parent's report
        with self.lock:
            if not self._final:
                states = (group.state for group in self.execution.values())
                self._final = all(state is not GroupState.PENDING for state in states)
            # An import that takes long may be the training itself.
            is_overdue = time.monotonic() - self._written_at > _PATIENCE
            if settled or self._final or is_overdue:
                self.save()
        # One that an interrupt keeps from being called is called with the next change.
        while self._final and self._callbacks:
            with self.lock:
                callback = self._callbacks.pop(0) if self._callbacks else None
            if callback is not None:
                self._call(callback)
        self.observer.changed()

    def save(self) -> None:
        """Writes the journal, if this process leaves one and there is anything new."""
        with self.lock:
            now = self.revision, self._final
            if now != self._written and self._role.is_this_process and self.leaves_journal:
                # What is final is one JSON object again, for everybody to read.
                self.journal.write(self._whole, None if self._final else self._changes)
                self._written, self._written_at = now, time.monotonic()

    def rollback_error(self, message: str) -> OptimizationRollbackError:
        """The error that leaves the model's import when restoring has failed."""
        return OptimizationRollbackError(message, self)

    def _call(self, callback: Callable[[OptimizationReport], object]) -> None:
        # It may run inside one of the model's import statements, which must not break.
        try:
            callback(self)
        except Exception:
            from logging import getLogger

            getLogger("turbo_physai").exception("turbo_physai: a callback of on_final failed")

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data; `schema_version` tells its layout."""
        import json

        with self.lock:
            made: dict[str, Any] = json.loads(self._text())
        return made

    def _text(self) -> str:
        return self._view.text(final=self._final, summary=self.summary)

    def _whole(self) -> str:
        return self._view.whole(final=self._final, summary=self.summary)

    def _changes(self) -> str:
        return self._view.changes(final=self._final, summary=self.summary)

    def __str__(self) -> str:
        from turbo_physai.report.text import render

        return render(self)


def _has_acted(group: GroupRecord) -> bool:
    return group.state not in IDLE or any(m.state is not MemberState.WAITING for m in group.members)
