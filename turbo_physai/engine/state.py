"""What the engine keeps per Group and per member while it works; the report shows the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from turbo_physai.declarations import Replacement
from turbo_physai.declarations.names import ObjectPath
from turbo_physai.engine.transaction import Transaction
from turbo_physai.report import GroupExecution, GroupState, MemberExecution

if TYPE_CHECKING:
    from turbo_physai.engine.binding import Exchange
    from turbo_physai.plan import PreparedExecution, PreparedGroup


@attrs.define(eq=False)
class Site:
    """One declared path of a member, and what became of it.

    Attributes:
        path: the target or an alias.
        module: the module that it lies in; None until that can be told.
        bound_in: the module object in which it was last bound.
        runs: which run of that module's body.
    """

    path: ObjectPath
    module: str | None = None
    bound_in: Any = None
    runs: int = 0

    def is_bound(self, module: Any, runs: int) -> bool:
        return self.bound_in is module and self.runs == runs


@attrs.define(eq=False)
class MemberBinding:
    """One Replacement at work.

    Attributes:
        declared: the Replacement.
        sites: its target, then its aliases.
        execution: its record in the report.
        exchange: the objects that were exchanged, of the latest run of the target's module.
        waits_for: a module that was still being imported when it was needed.
        busy: whether some thread is binding it now.
    """

    declared: Replacement
    sites: tuple[Site, ...]
    execution: MemberExecution
    exchange: Exchange | None = None
    waits_for: str | None = None
    busy: bool = False

    @property
    def is_bound(self) -> bool:
        return all(site.bound_in is not None for site in self.sites)


@attrs.define(eq=False)
class GroupBinding:
    """One Group at work: its plan, its members, its transaction and its record in the report."""

    prepared: PreparedGroup
    members: tuple[MemberBinding, ...]
    execution: GroupExecution
    transaction: Transaction = attrs.field(factory=Transaction)
    checked: bool = False

    @property
    def id(self) -> str:
        return self.prepared.id

    @property
    def state(self) -> GroupState:
        return self.execution.state

    def end(self, state: GroupState, reason: str) -> None:
        self.execution.state, self.execution.reason = state, reason


def bindings(prepared: PreparedExecution) -> list[GroupBinding]:
    """What is to be done, and the records of it for the report, in the order of binding."""
    return [_binding(group) for group in prepared.groups.values()]


def _binding(group: PreparedGroup) -> GroupBinding:
    state = {
        "apply": GroupState.PENDING,
        "skip": GroupState.SKIPPED,
        "block": GroupState.BLOCKED,
    }[group.decision]
    members = []
    for declared in group.declared.members:
        if not isinstance(declared, Replacement):
            raise NotImplementedError(f"{type(declared).__name__} in {group.id}")
        sites = tuple(Site(ObjectPath.parse(path)) for path in declared.paths)
        record = MemberExecution(declared.kind, declared.target, declared.aliases)
        members.append(MemberBinding(declared, sites, record))
    records = [member.execution for member in members]
    return GroupBinding(group, tuple(members), GroupExecution(state, group.reason, records))
