"""The journals of a launch, taken together: what its ranks did, and where they differ.

Ranks that run different code diverge without a word, so a Group whose outcome is not the same on
all of them comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from turbo_physai.engine.records import GroupState, MemberState
from turbo_physai.errors import TurboPhysAIError
from turbo_physai.report.journal import PATTERN, read
from turbo_physai.report.report import IDLE
from turbo_physai.report.report import SCHEMA as JOURNAL_SCHEMA

SCHEMA: Final = "turbophysai/merged-report/v1"

# The states in which nothing is missing.
_WANTED: Final = (GroupState.APPLIED.value, GroupState.SKIPPED.value)


class NoReportsError(TurboPhysAIError):
    """No report lies where some were asked for."""


@attrs.frozen
class Process:
    """One journal: the process that wrote it, and its report as plain data."""

    path: Path
    report: dict[str, Any]

    @property
    def rank(self) -> int:
        return int(self.report["rank"])

    @property
    def run_id(self) -> str:
        return str(self.report["run_id"])

    @property
    def name(self) -> str:
        environment = self.report["prepared_execution"]["environment"]
        return f"{environment['host']}:{environment['pid']}"

    @property
    def order(self) -> tuple[bool, str]:
        """The greatest of a rank's processes speaks for it: the last one that met the model. A rank
        has several after a restart, or where it runs other Python programs first."""
        states = (group["state"] for group in self.report["execution"].values())
        return any(state not in IDLE for state in states), self.report["started_at"]


@attrs.frozen
class Outcome:
    """What became of a Group on some ranks. Ranks agree if all but the reason's words is equal.

    `forced` names the failed checks that the caller has let through.
    """

    state: str
    members: tuple[str, ...]
    forced: tuple[str, ...]
    reason: str = attrs.field(eq=False)
    ranks: tuple[int, ...] = attrs.field(eq=False)


@attrs.frozen
class MergedGroup:
    """A Group over all ranks: one outcome if they agree, the commonest first if they do not."""

    id: str
    outcomes: tuple[Outcome, ...]
    warnings: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        return len(self.outcomes) > 1

    @property
    def is_missed(self) -> bool:
        """Whether it was to be applied and is not, on some rank."""
        return any(outcome.state not in _WANTED for outcome in self.outcomes)


@attrs.frozen
class MergedReport:
    """One run.

    Attributes:
        run_id: its id.
        ranks: the process that speaks for each rank.
        others: further processes of these ranks.
        missing: ranks of which there is no report.
        groups: those that differ first, otherwise in the order of the config.
        other_runs: ids of the other runs in the folder, newest first.
        unreadable: what could not be read, and why.
    """

    run_id: str
    ranks: dict[int, Process]
    others: tuple[Process, ...]
    missing: tuple[int, ...]
    groups: tuple[MergedGroup, ...]
    other_runs: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        return any(group.differs for group in self.groups)

    @property
    def is_complete(self) -> bool:
        """Whether every rank has left a report, and all have applied the same Groups: those that
        were to be applied."""
        missed = any(group.is_missed for group in self.groups)
        return not (self.differs or missed or self.missing)

    def to_dict(self) -> dict[str, Any]:
        """The merged report as plain data."""
        return {
            "schema_version": SCHEMA,
            "run_id": self.run_id,
            "differs": self.differs,
            "complete": self.is_complete,
            "ranks": [_described(process) for process in self.ranks.values()],
            "other_processes": [_described(process) for process in self.others],
            "missing_ranks": list(self.missing),
            "groups": [
                {"id": group.id, "differs": group.differs, **attrs.asdict(group)}
                for group in self.groups
            ],
            "other_runs": list(self.other_runs),
            "unreadable": list(self.unreadable),
        }


def merge(folder: Path, run_id: str | None = None) -> MergedReport:
    """Merges the journals of one run that lie in `folder` or below it: those of `run_id`, else of
    the run that started last.

    Raises:
        NoReportsError: there are none.
    """
    processes, unreadable = _read(folder)
    runs: dict[str, list[Process]] = {}
    for process in sorted(processes, key=lambda process: process.report["started_at"]):
        runs.setdefault(process.run_id, []).append(process)
    newest_first = sorted(runs, key=lambda id_: runs[id_][-1].report["started_at"], reverse=True)
    if not runs:
        why = f" ({'; '.join(unreadable)})" if unreadable else ""
        raise NoReportsError(f"found no {PATTERN} in {folder}{why}")
    chosen = run_id or newest_first[0]
    if chosen not in runs:
        raise NoReportsError(
            f"found no run {chosen!r} in {folder}; it has {', '.join(newest_first)}"
        )
    merged = _merged(chosen, runs[chosen])
    others = tuple(id_ for id_ in newest_first if id_ != chosen)
    return attrs.evolve(merged, other_runs=others, unreadable=tuple(unreadable))


def _read(folder: Path) -> tuple[list[Process], list[str]]:
    processes, unreadable = [], []
    for path in sorted(folder.rglob(PATTERN)):
        try:
            report = read(path)
            found = report.get("schema_version")
            if found != JOURNAL_SCHEMA:
                raise ValueError(f"found the schema {found!r}; accepted: {JOURNAL_SCHEMA}")
        except (OSError, ValueError) as error:
            unreadable.append(f"{path}: {error}")
        else:
            processes.append(Process(path, report))
    return processes, unreadable


def _merged(run_id: str, processes: Sequence[Process]) -> MergedReport:
    ranks: dict[int, Process] = {}
    for process in sorted(processes, key=lambda process: (process.rank, process.order)):
        ranks[process.rank] = process  # the greatest of a rank comes last
    others = tuple(process for process in processes if process is not ranks[process.rank])
    size = max(process.report["world_size"] for process in ranks.values())
    ids = dict.fromkeys(id_ for process in ranks.values() for id_ in process.report["execution"])
    groups = [_group(id_, ranks) for id_ in ids]
    return MergedReport(
        run_id,
        ranks,
        others,
        tuple(rank for rank in range(size) if rank not in ranks),
        tuple(sorted(groups, key=lambda group: not group.differs)),
    )


def _group(id_: str, ranks: dict[int, Process]) -> MergedGroup:
    found: dict[Outcome, list[int]] = {}
    warnings: dict[str, None] = {}
    for rank, process in ranks.items():
        group = process.report["execution"].get(id_)
        prepared = process.report["prepared_execution"]
        found.setdefault(_outcome(id_, group, prepared), []).append(rank)
        warnings.update(dict.fromkeys(group["warnings"] if group else ()))
    outcomes = (attrs.evolve(outcome, ranks=tuple(at)) for outcome, at in found.items())
    return MergedGroup(
        id_, tuple(sorted(outcomes, key=lambda outcome: -len(outcome.ranks))), tuple(warnings)
    )


def _outcome(id_: str, group: dict[str, Any] | None, prepared: dict[str, Any]) -> Outcome:
    if group is None:
        return Outcome("absent", (), (), "not in the config of this rank", ())
    members, forced = tuple(_members(group["members"])), tuple(_forced(id_, prepared))
    return Outcome(group["state"], members, forced, group["reason"], ())


def _forced(id_: str, prepared: dict[str, Any]) -> Iterable[str]:
    if prepared["groups"][id_]["forced"]:
        for check in (*prepared["checks"], *prepared["groups"][id_]["checks"]):
            if check["outcome"] == "fail" and check["overridable"]:
                yield f"{check['name']} of {check['subject']}"


def _members(members: Iterable[dict[str, Any]]) -> Iterable[str]:
    for member in members:
        new = member["replacement"] if member["state"] == MemberState.BOUND else None
        by = f" to {new['name']}" if new else ""
        yield f"{member['kind']} {member['target']}: {member['state']}{by}"


def _described(process: Process) -> dict[str, Any]:
    report = process.report
    keys = ("rank", "world_size", "final", "started_at", "summary", "optimization_config_path")
    return {
        **{key: report[key] for key in keys},
        "process": process.name,
        "journal": str(process.path),
    }
