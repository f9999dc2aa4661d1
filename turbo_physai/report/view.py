"""The records of a run as plain data: what a journal holds."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from turbo_physai.config import OptimizationConfig
    from turbo_physai.engine.records import GroupRecord, MemberRecord


def group_as_dict(group: GroupRecord) -> dict[str, Any]:
    """What became of one Group."""
    return {
        "state": group.state.value,
        "reason": group.reason,
        "members": [member_as_dict(member) for member in group.members],
        "warnings": list(group.warnings),
        "error": _as_dict(group.error),
    }


def member_as_dict(member: MemberRecord) -> dict[str, Any]:
    """What became of one declaration."""
    return {
        "kind": member.kind,
        "target": member.target,
        "aliases": list(member.aliases),
        "state": member.state.value,
        "module": member.module,
        "original": _as_dict(member.original),
        "replacement": _as_dict(member.replacement),
        "seconds": member.seconds,
        "times_bound": member.times_bound,
        "captured": list(member.captured),
        "left": list(member.left),
        "note": member.note,
        "metrics": dict(member.metrics),
        "backend": _as_dict(member.backend),
        "error": _as_dict(member.error),
    }


def config_as_dict(config: OptimizationConfig) -> dict[str, Any]:
    """An OptimizationConfig, with everything that it extends."""
    return attrs.asdict(
        config,
        filter=lambda field, _: field.name != "places",
        value_serializer=lambda _, __, value: str(value) if isinstance(value, PurePath) else value,
    )


def _as_dict(value: attrs.AttrsInstance | None) -> dict[str, Any] | None:
    return None if value is None else attrs.asdict(value)
