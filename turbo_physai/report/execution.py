"""What happened: one record per Group and per declared member, filled in by the engine."""

from __future__ import annotations

import traceback
from enum import Enum
from typing import Any

import attrs

from turbo_physai.evidence import BackendResult
from turbo_physai.report.plain import text as text_of


class GroupState(str, Enum):
    """How far a Group has come."""

    PENDING = "pending"
    APPLIED = "applied"
    SKIPPED = "skipped"
    BLOCKED = "blocked"
    ROLLED_BACK = "rolled_back"
    FAILED = "failed"
    NOT_STARTED = "not_started"

    @property
    def is_open(self) -> bool:
        """Whether its members may still be bound."""
        return self in (GroupState.PENDING, GroupState.APPLIED)


class MemberState(str, Enum):
    """How far one declared member has come."""

    WAITING = "waiting"
    BOUND = "bound"
    RESTORED = "restored"


@attrs.frozen
class Origin:
    """Where an object was defined; file and line are None where it does not show."""

    name: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        return f"{self.name} ({place})" if place else self.name


@attrs.frozen
class Failure:
    """An exception, with what caused it, as text: the report must outlive the objects."""

    type: str
    message: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        text = "".join(traceback.format_exception(error))
        return cls(type(error).__name__, text_of(error), text)

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


@attrs.define
class MemberExecution:
    """What became of one member of a Group.

    Attributes:
        kind: ``replace``, ``wrap`` or the name of the import-compatibility declaration.
        target: the declared path.
        aliases: the other declared paths.
        state: how far it has come.
        module: the module that holds the target, once that is known.
        original: the object that was found.
        replacement: the object that the declaration names: what was put in its place, or the
            factory that made that.
        seconds: when it was bound, in seconds since the start of the engine.
        times_bound: how often; a module that is reloaded or imported again is bound again.
        captured: names that held the original and were changed with it.
        left: names that hold the original and could not be changed.
        note: what there is to say of it beyond its state.
        backend: what serves the replacement in this process, where that is known.
        metrics: what the replacement reports of itself while it works.
        error: what went wrong.
    """

    kind: str
    target: str
    aliases: tuple[str, ...] = ()
    state: MemberState = MemberState.WAITING
    module: str | None = None
    original: Origin | None = None
    replacement: Origin | None = None
    seconds: float | None = None
    times_bound: int = 0
    captured: list[str] = attrs.field(factory=list)
    left: list[str] = attrs.field(factory=list)
    note: str = ""
    backend: BackendResult | None = None
    metrics: dict[str, Any] = attrs.field(factory=dict)
    error: Failure | None = None


@attrs.define
class GroupExecution:
    """What became of one Group: its state, why, and its members."""

    state: GroupState
    reason: str = ""
    members: list[MemberExecution] = attrs.field(factory=list)
    warnings: list[str] = attrs.field(factory=list)
    error: Failure | None = None

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def to_dict(self) -> dict[str, Any]:
        return attrs.asdict(self, value_serializer=_plain)


def _plain(_: Any, __: Any, value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value
