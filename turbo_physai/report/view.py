"""The records of a run as JSON: what a journal holds.

A report is written while a model is imported, and changes in few places from one time to the next.
So the text of each Group is kept until its record, or a count of its calls, has changed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from turbo_physai.process.ranks import rank, world_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from turbo_physai.config import OptimizationConfig
    from turbo_physai.engine.records import GroupRecord, MemberRecord, Records


class _Shown(NamedTuple):
    """A Group as it was shown last: what was decided, and what happened."""

    revision: int
    counts: tuple[object, ...]
    prepared: str
    executed: str

    def has_counted(self, record: GroupRecord) -> bool:
        """Whether calls were counted since: that changes no revision."""
        return bool(self.counts) and self.counts != record.counts


class View:
    """The JSON of one report. Whoever calls a method holds the records' lock.

    Args:
        records: what it shows.
        head: what does not change.
        config: the OptimizationConfig, with everything that it extends.
    """

    def __init__(
        self, records: Records, head: Mapping[str, Any], config: OptimizationConfig
    ) -> None:
        self._records = records
        self._head = head
        self._config = config
        self._fixed: dict[str, str] = {}
        self._shown: dict[str, _Shown] = {}
        # What has changed since the last call of `changes` or `whole`.
        self._changed: set[str] = set()
        self._top: dict[str, str] = {}
        self._plan: dict[str, str] = {}

    def text(self, *, final: bool, summary: Mapping[str, int]) -> str:
        """The report as it is now."""
        self._refresh()
        fixed = self._fixed = self._fixed or {
            **{key: _json(value) for key, value in self._head.items()},
            "optimization_config": _json(_config(self._config)),
            "environment": _json(self._records.prepared.environment),
        }
        environment = fixed["environment"]
        top = {key: text for key, text in fixed.items() if key != "environment"}
        return self._object(
            {**top, **_top(final, summary)},
            {"environment": environment, **_plan(self._records)},
            self._records.groups,
        )

    def whole(self, *, final: bool, summary: Mapping[str, int]) -> str:
        """The report as it is now, for `changes` to go on from."""
        whole = self.text(final=final, summary=summary)
        self.changes(final=final, summary=summary)
        return whole

    def changes(self, *, final: bool, summary: Mapping[str, int]) -> str:
        """Of the report as it is now, what has changed since the last call of this or `whole`:
        Groups as a whole by their ids, all else by its key."""
        self._refresh()
        top, plan = _top(final, summary), _plan(self._records)
        changed = self._object(
            _differences(self._top, top),
            _differences(self._plan, plan),
            [id_ for id_ in self._records.groups if id_ in self._changed],
        )
        self._top, self._plan = top, plan
        self._changed.clear()
        return changed

    def _object(self, top: Mapping[str, str], plan: Mapping[str, str], ids: Iterable[str]) -> str:
        shown = {id_: self._shown[id_] for id_ in ids}
        prepared = {id_: each.prepared for id_, each in shown.items()}
        executed = {id_: each.executed for id_, each in shown.items()}
        plan = {**plan, "groups": _object(prepared)}
        return _object({**top, "prepared_execution": _object(plan), "execution": _object(executed)})

    def _refresh(self) -> None:
        for id_, record in self._records.groups.items():
            shown = self._shown.get(id_)
            if shown is None or shown.revision != record.revision or shown.has_counted(record):
                prepared, executed = _json(record.prepared.to_dict()), _json(_executed(record))
                self._shown[id_] = _Shown(record.revision, record.counts, prepared, executed)
                self._changed.add(id_)


def _top(final: bool, summary: Mapping[str, int]) -> dict[str, str]:
    found = {"final": final, "rank": rank(), "world_size": world_size(), "summary": summary}
    return {key: _json(value) for key, value in found.items()}


def _plan(records: Records) -> dict[str, str]:
    prepared = records.prepared
    return {
        "checks": _json([check.to_dict() for check in prepared.checks]),
        "order": _json(prepared.order),
        "conflicts": _json([each._asdict() for each in prepared.conflicts]),
    }


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in now.items() if before.get(key) != text}


def _json(value: Any) -> str:
    return json.dumps(value, default=str)


def _object(members: Mapping[str, str]) -> str:
    """An object whose values are JSON already, a member a line."""
    return "{" + ",\n".join([f"{_json(key)}: {text}" for key, text in members.items()]) + "}"


def _executed(group: GroupRecord) -> dict[str, Any]:
    return {
        "state": group.state.value,
        "reason": group.reason,
        "members": [_member(member) for member in group.members],
        "warnings": list(group.warnings),
        "error": _fields(group.error),
    }


def _member(member: MemberRecord) -> dict[str, Any]:
    return {
        "kind": member.kind,
        "target": member.target,
        "aliases": list(member.aliases),
        "state": member.state.value,
        "module": member.module,
        "original": _fields(member.original),
        "replacement": _fields(member.replacement),
        "seconds": member.seconds,
        "times_bound": member.times_bound,
        "captured": list(member.captured),
        "left": list(member.left),
        "note": member.note,
        "metrics": dict(member.metrics),
        "backend": _fields(member.backend),
        "branches": _branches(member),
        "calls": None if (calls := member.calls) is None else calls.replacement + calls.original,
        "first_original": None if calls is None else calls.first_original or None,
        "verification": _fields(member.verification),
        "error": _fields(member.error),
    }


def _counts(member: MemberRecord) -> tuple[int, int] | None:
    calls = member.calls
    return None if calls is None else (calls.replacement, calls.original)


def _branches(member: MemberRecord) -> dict[str, int] | None:
    counted = _counts(member) if member.has_condition else None
    return None if counted is None else dict(zip(("replacement", "original"), counted, strict=True))


def _config(config: OptimizationConfig) -> dict[str, Any]:
    return attrs.asdict(config, filter=lambda field, _: field.name not in ("places", "file"))


def _fields(value: attrs.AttrsInstance | None) -> dict[str, Any] | None:
    return None if value is None else attrs.asdict(value)
