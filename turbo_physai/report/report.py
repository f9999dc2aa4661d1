"""The OptimizationReport: a live account of what was decided and what happened."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from datetime import datetime, timezone
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from turbo_physai.errors import OptimizationNotAppliedError
from turbo_physai.process.ranks import rank, world_size
from turbo_physai.report.execution import GroupState, MemberState
from turbo_physai.report.missed import MissedWarnings, shortfall

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from turbo_physai.config import OptimizationConfig
    from turbo_physai.plan import PreparedExecution
    from turbo_physai.process.role import ProcessRole
    from turbo_physai.report.execution import GroupExecution
    from turbo_physai.report.journal import Journal

SCHEMA: Final = "turbophysai/report/v1"

# The states in which a Group is for as long as none of its targets was imported.
IDLE: Final = (GroupState.PENDING, GroupState.SKIPPED, GroupState.NOT_STARTED)

logger = logging.getLogger("turbo_physai")


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
        journal: the file that holds this report, replaced at every change.
        observer: judges the report after every change, and may raise; for strict mode.
        lock: guards all of it. The engine changes the report only while holding it.
    """

    def __init__(
        self,
        run_id: str,
        optimization_config: OptimizationConfig,
        prepared_execution: PreparedExecution,
        execution: dict[str, GroupExecution],
        journal: Journal,
        role: ProcessRole,
        runtime_config_path: str | None = None,
    ) -> None:
        self.run_id = run_id
        self.optimization_config = optimization_config
        self.prepared_execution = prepared_execution
        self.execution = execution
        self.optimization_config_path: Path = optimization_config.path
        self.runtime_config_path = runtime_config_path
        self.started_at = datetime.now(timezone.utc).isoformat()
        self.journal = journal
        self.observer: Observer = MissedWarnings(self)
        self.lock = threading.RLock()
        self._role = role
        self._final = False
        self._callbacks: list[Callable[[OptimizationReport], object]] = []

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
        return self._role.reports(self._has_acted)

    @property
    def _has_acted(self) -> bool:
        groups = self.execution.values()
        return any(
            group.state not in IDLE
            or any(m.state is not MemberState.WAITING for m in group.members)
            for group in groups
        )

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

    def changed(self) -> None:
        """Takes note of a change: writes the journal and, with the last Group settled, finishes."""
        if not self._role.is_this_process:
            return  # what a forked child does is no part of its parent's report
        with self.lock:
            settled = all(g.state is not GroupState.PENDING for g in self.execution.values())
            self._final = self._final or settled
            self.save()
        # One that an interrupt keeps from being called is called with the next change.
        while self._final and self._callbacks:
            with self.lock:
                callback = self._callbacks.pop(0) if self._callbacks else None
            if callback is not None:
                self._call(callback)
        self.observer.changed()

    def save(self) -> None:
        """Writes the journal, if this process leaves one."""
        with self.lock:
            if self._role.is_this_process and self.leaves_journal:
                self.journal.write(self.to_dict())

    def _call(self, callback: Callable[[OptimizationReport], object]) -> None:
        # It may run inside one of the model's import statements, which must not break.
        try:
            callback(self)
        except Exception:
            logger.exception("turbo_physai: a callback of on_final failed")

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data; `schema_version` tells its layout."""
        with self.lock:
            return {
                "schema_version": SCHEMA,
                "run_id": self.run_id,
                "final": self._final,
                "started_at": self.started_at,
                "rank": rank(),
                "world_size": world_size(),
                "summary": self.summary,
                "optimization_config_path": str(self.optimization_config_path),
                "runtime_config_path": self.runtime_config_path,
                "optimization_config": attrs.asdict(
                    self.optimization_config,
                    filter=lambda field, _: field.name != "place",
                    value_serializer=lambda _, __, value: (
                        str(value) if isinstance(value, PurePath) else value
                    ),
                ),
                "prepared_execution": self.prepared_execution.to_dict(),
                "execution": {id_: group.to_dict() for id_, group in self.execution.items()},
            }

    def __str__(self) -> str:
        from turbo_physai.report.text import render

        return render(self)
