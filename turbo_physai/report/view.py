"""The records of a run as JSON: what a journal holds.

A report is written while a model is imported, and changes in few places from one time to the next.
So the text of each Group is kept until its record, or a count of its calls, has changed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs

from turbo_physai.process.ranks import rank, world_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from turbo_physai.config import OptimizationConfig
    from turbo_physai.engine.records import GroupRecord, MemberRecord, Records


class View:
    """The JSON of one report.

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
        self._groups: dict[str, tuple[object, str, str]] = {}

    def text(self, *, final: bool, summary: Mapping[str, int]) -> str:
        """The report as it is now. Whoever calls it holds the records' lock."""
        prepared = self._records.prepared
        fixed = self._fixed = self._fixed or {
            "optimization_config": _json(_config(self._config)),
            "environment": _json(prepared.environment),
        }
        groups = [self._group(record) for record in self._records.groups.values()]
        changing = {
            "final": final,
            "rank": rank(),
            "world_size": world_size(),
            "summary": summary,
        }
        parts = {
            **{key: _json(value) for key, value in {**self._head, **changing}.items()},
            "optimization_config": fixed["optimization_config"],
            "prepared_execution": _object(
                {
                    "environment": fixed["environment"],
                    "checks": _json([check.to_dict() for check in prepared.checks]),
                    "order": _json(prepared.order),
                    "conflicts": _json([each._asdict() for each in prepared.conflicts]),
                    "groups": _joined(prepared for _, prepared, _ in groups),
                }
            ),
            "execution": _joined(executed for _, _, executed in groups),
        }
        return _object(parts)

    def _group(self, record: GroupRecord) -> tuple[object, str, str]:
        known = self._groups.get(record.id)
        # Calls are counted without a change of the record.
        revision = record.revision, *(member.branches for member in record.members)
        if known is None or known[0] != revision:
            prepared, executed = record.prepared.to_dict(), _executed(record)
            members = _member_text(record.id, prepared), _member_text(record.id, executed)
            known = self._groups[record.id] = (revision, *members)
        return known


def _json(value: Any) -> str:
    return json.dumps(value, default=str)


def _object(members: Mapping[str, str]) -> str:
    """An object whose values are JSON already."""
    return _joined(f"{_json(key)}: {text}" for key, text in members.items())


def _joined(members: Iterable[str]) -> str:
    """An object of members that are JSON already, one a line."""
    return "{" + ",\n".join(members) + "}"


def _member_text(key: str, value: Any) -> str:
    return f"{_json(key)}: {_json(value)}"


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
        "error": _fields(member.error),
    }


def _branches(member: MemberRecord) -> dict[str, int] | None:
    counted = member.branches
    return None if counted is None else dict(zip(("replacement", "original"), counted, strict=True))


def _config(config: OptimizationConfig) -> dict[str, Any]:
    return attrs.asdict(config, filter=lambda field, _: field.name != "places")


def _fields(value: attrs.AttrsInstance | None) -> dict[str, Any] | None:
    return None if value is None else attrs.asdict(value)
