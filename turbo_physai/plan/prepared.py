"""PreparedExecution: what was decided, and on what grounds, before anything is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from turbo_physai.config import GroupEntry
    from turbo_physai.declarations import Group
    from turbo_physai.evidence import Check

Decision = Literal["apply", "skip", "block"]


@attrs.frozen
class Conflict:
    """Two Groups that claim one target; the later one is blocked."""

    target: str
    holder: str
    blocked: str

    def __str__(self) -> str:
        return f"{self.target} is already changed by the Group {self.holder}"


@attrs.define
class PreparedGroup:
    """What was decided for one Group.

    Attributes:
        declared: the Group.
        entry: what the config says of it.
        options: an instance of its schema: what the entry states, and defaults.
        forced: whether its overridable failures are let through.
        decision: ``apply``, ``skip`` (not wanted) or ``block`` (wanted, but not possible).
        reason: why it is not ``apply``.
        checks: the evidence so far; completed as modules are found.
    """

    declared: Group
    entry: GroupEntry
    options: Any
    forced: bool = False
    decision: Decision = "apply"
    reason: str = ""
    checks: list[Check] = attrs.field(factory=list)

    @property
    def id(self) -> str:
        return self.declared.id

    def block(self, reason: str) -> None:
        self.decision, self.reason = "block", reason

    def add(self, checks: list[Check]) -> None:
        """Takes in checks, each in place of an earlier answer to the same question; one that fails,
        and was not forced, blocks the Group."""
        self.checks = _with(self.checks, checks)
        self.heed(checks)

    def heed(self, checks: Iterable[Check]) -> None:
        """Is blocked by a check that fails and was not forced, its own or one of the config."""
        failed = [check for check in checks if check.blocks(forced=self.forced)]
        if failed and self.decision == "apply":
            self.block("; ".join(map(str, failed)))

    def to_dict(self) -> dict[str, Any]:
        return {
            "decision": self.decision,
            "reason": self.reason,
            "forced": self.forced,
            "depends_on": list(self.declared.depends_on),
            "options": attrs.asdict(self.options),
            "checks": [check.to_dict() for check in self.checks],
        }


def _with(checks: list[Check], more: list[Check]) -> list[Check]:
    asked = {(check.name, check.subject) for check in more}
    return [check for check in checks if (check.name, check.subject) not in asked] + more


@attrs.define
class PreparedExecution:
    """The environment as it was found, the checks, and the decision per Group.

    Attributes:
        environment: versions, platform and process.
        groups: the Groups of the config by id, in the order in which they bind.
        conflicts: the claims that could not be met.
        checks: the checks of the config as a whole.
    """

    environment: Mapping[str, Any]
    groups: dict[str, PreparedGroup]
    conflicts: tuple[Conflict, ...] = ()
    checks: list[Check] = attrs.field(factory=list)

    def add(self, checks: list[Check]) -> None:
        """Takes in checks of the config as a whole; one that fails blocks every Group that is to be
        applied and was not forced past it."""
        self.checks = _with(self.checks, checks)
        for group in self.groups.values():
            group.heed(checks)

    @property
    def order(self) -> tuple[str, ...]:
        """The ids of the Groups to be applied, in order."""
        return tuple(id_ for id_, group in self.groups.items() if group.decision == "apply")

    def to_dict(self) -> dict[str, Any]:
        return {
            "environment": dict(self.environment),
            "checks": [check.to_dict() for check in self.checks],
            "order": list(self.order),
            "conflicts": [attrs.asdict(conflict) for conflict in self.conflicts],
            "groups": {id_: group.to_dict() for id_, group in self.groups.items()},
        }
