"""PreparedExecution: what was decided, and on what grounds, before anything is changed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import attrs

from turbo_physai.evidence import Check
from turbo_physai.plan.table import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from turbo_physai.config import GroupEntry
    from turbo_physai.declarations import Group
    from turbo_physai.evidence.gather import Evidence, Examiner

Decision = Literal["apply", "skip", "block", "unknown"]


class Conflict(NamedTuple):
    """Two Groups that claim one target; the later one is blocked."""

    target: str
    holder: str
    blocked: str

    @property
    def check(self) -> Check:
        reason = f"the Group {self.holder} already changes it"
        return Check("conflict", "fail", self.target, reason=reason)


@attrs.define
class PreparedGroup:
    """What was decided for one Group.

    Attributes:
        declared: the Group.
        entry: what the config says of it.
        examiner: gathers its evidence.
        forced: whether its overridable failures are let through.
        unwanted: why it is not to be applied; empty if it is.
        checks: the evidence so far; completed as modules are found.
        decision: ``apply``, ``skip`` (not wanted), ``block`` (wanted, but not possible) or
            ``unknown`` (wanted, and only the live objects can tell). It follows from the rest and
            from the Group's dependencies: see `PreparedExecution.decide`.
        reason: why it is not ``apply``.
    """

    declared: Group
    entry: GroupEntry
    examiner: Examiner
    forced: bool = False
    unwanted: str = ""
    checks: list[Check] = attrs.field(factory=list)
    decision: Decision = "apply"
    reason: str = ""

    @property
    def id(self) -> str:
        return self.declared.id

    @property
    def options(self) -> Any:
        """An instance of its schema: what the entry states, and defaults."""
        return self.examiner.options

    @property
    def is_possible(self) -> bool:
        """Whether it is to be applied as far as can be told now."""
        return self.decision in ("apply", "unknown")

    def leaves_open(self, subjects: Iterable[str]) -> bool:
        """Whether a check of one of these waits for the live object."""
        wanted = set(subjects)
        return any(check.leaves_open and check.subject in wanted for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """What was decided, as plain data."""
        return {
            "decision": self.decision,
            "reason": self.reason,
            "forced": self.forced,
            "compatibility": self.declared.compatibility,
            "depends_on": list(self.declared.depends_on),
            "options": attrs.asdict(self.options),
            "checks": [check.to_dict() for check in self.checks],
        }


def _with(checks: list[Check], more: list[Check]) -> list[Check]:
    asked = {(check.name, check.subject) for check in more}
    return [check for check in checks if (check.name, check.subject) not in asked] + more


@attrs.define(repr=False)
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
    _dependents: list[PreparedGroup] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._dependents = [each for each in self.groups.values() if each.declared.depends_on]

    def add(self, checks: list[Check]) -> list[str]:
        """Takes in checks of the config as a whole, each in place of an earlier answer to the same
        question. Returns the ids of the Groups for which it has decided anew."""
        known, self.checks = self.checks, _with(self.checks, checks)
        return [] if known == self.checks else self.decide(self.groups)

    def take(self, group: PreparedGroup, found: Evidence) -> list[str]:
        """Takes in what was found out for a Group; returns what `add` does."""
        decided = self.add(found.config)
        return list(dict.fromkeys((*decided, *self.add_to(group, found.group))))

    def add_to(self, group: PreparedGroup, checks: list[Check]) -> list[str]:
        """Takes in checks of a Group, and decides for it and those that depend on it; returns what
        `add` does."""
        group.checks = _with(group.checks, checks)
        return self.decide(self._affected_by(group.id))

    def decide(self, ids: Iterable[str]) -> list[str]:
        """Decides for these Groups, in their order: the one place where that is done, for `check`
        as for `apply`. Returns their ids.

        Dependencies come first in `groups`, so that what is said of them is settled.
        """
        decided = list(ids)
        for id_ in decided:
            group = self.groups[id_]
            group.decision, group.reason = self._decision(group)
        return decided

    def blocking(self, group: PreparedGroup) -> list[Check]:
        """The checks, its own and those of the config, that keep a Group from being applied."""
        checks = (*self.checks, *group.checks)
        return [check for check in checks if check.blocks(forced=group.forced)]

    def _decision(self, group: PreparedGroup) -> tuple[Decision, str]:
        if group.unwanted:
            return "skip", group.unwanted
        if skipped := self._dependencies(group, "skip"):
            return "skip", f"depends on {skipped}, which is skipped"
        if failed := self.blocking(group):
            return "block", "; ".join(map(str, failed))
        if blocked := self._dependencies(group, "block"):
            return "block", f"depends on {blocked}, which is blocked"
        if left_open := [check for check in group.checks if check.leaves_open]:
            return "unknown", "; ".join(map(str, left_open))
        if unknown := self._dependencies(group, "unknown"):
            return "unknown", f"depends on {unknown}, of which that is unknown"
        return "apply", ""

    def _affected_by(self, id_: str) -> dict[str, None]:
        """It and all that depend on it, directly or not, in order."""
        affected = {id_: None}
        for other in self._dependents:
            if any(needed in affected for needed in other.declared.depends_on):
                affected[other.id] = None
        return affected

    def _dependencies(self, group: PreparedGroup, decision: Decision) -> str:
        found = (id_ for id_ in group.declared.depends_on if self.groups[id_].decision == decision)
        return ", ".join(found)

    def __str__(self) -> str:
        """A table: one row a Group, and the checks of the config as a whole that did not pass."""
        rows = [("Group", "decision", "reason")]
        for id_, group in self.groups.items():
            forced = " (forced)" if group.forced else ""
            rows.append((id_, group.decision + forced, group.reason))
        failed = [check for check in self.checks if check.outcome in ("fail", "warning")]
        return table(rows, [f"{check.outcome}: {check}" for check in failed])

    def __repr__(self) -> str:
        counts = Counter(group.decision for group in self.groups.values())
        decisions = ", ".join(f"{count} {decision}" for decision, count in counts.items())
        return f"<{type(self).__name__}: {decisions or 'no Groups'}>"

    @property
    def order(self) -> tuple[str, ...]:
        """The ids of the Groups to be applied as far as can be told now, in order."""
        return tuple(id_ for id_, group in self.groups.items() if group.is_possible)

    def to_dict(self) -> dict[str, Any]:
        """All of it, as plain data."""
        return {
            "environment": dict(self.environment),
            "checks": [check.to_dict() for check in self.checks],
            "order": list(self.order),
            "conflicts": [conflict._asdict() for conflict in self.conflicts],
            "groups": {id_: group.to_dict() for id_, group in self.groups.items()},
        }
