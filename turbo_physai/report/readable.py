"""What a report shows, to those that write or judge it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from turbo_physai.config import OptimizationConfig
    from turbo_physai.engine.records import GroupRecord
    from turbo_physai.plan import PreparedExecution
    from turbo_physai.report.journal import Journal


class Readable(Protocol):
    """An OptimizationReport, which describes these."""

    run_id: str
    optimization_config: OptimizationConfig
    optimization_config_path: Path
    prepared_execution: PreparedExecution
    execution: Mapping[str, GroupRecord]
    journal: Journal

    @property
    def lock(self) -> AbstractContextManager[object]: ...

    @property
    def revision(self) -> int: ...

    @property
    def final(self) -> bool: ...

    @property
    def summary(self) -> dict[str, int]: ...

    @property
    def leaves_journal(self) -> bool: ...
