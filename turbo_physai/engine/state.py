"""What the engine keeps per Group and per member while it works; the report shows the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from turbo_physai.declarations import (
    DuringImport,
    ImportAlias,
    ImportDeclaration,
    Inject,
    Member,
    OptionalImport,
    RegistryOverride,
    ReplaceImport,
    Replacement,
)
from turbo_physai.declarations.names import ObjectPath
from turbo_physai.engine.claims import Claim
from turbo_physai.engine.transaction import Change, Transaction
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

    def bind(self, module: Any, runs: int) -> None:
        self.bound_in, self.runs = module, runs


@attrs.define(eq=False)
class MemberBinding:
    """One Replacement at work.

    Attributes:
        declared: the Replacement.
        sites: its target, then its aliases.
        execution: its record in the report.
        exchanges: the objects that were exchanged, one pair per run of the target's module.
        waits_for: a module that was still being imported when it was needed.
        claim: of the thread that binds it.
    """

    declared: Replacement
    sites: tuple[Site, ...]
    execution: MemberExecution
    exchanges: list[Exchange] = attrs.field(factory=list)
    waits_for: str | None = None
    claim: Claim = attrs.field(factory=Claim)

    @property
    def exchange(self) -> Exchange | None:
        """The latest of them."""
        return self.exchanges[-1] if self.exchanges else None

    @property
    def is_bound(self) -> bool:
        return not self.missing

    @property
    def paths(self) -> tuple[str, ...]:
        return self.declared.paths

    @property
    def modules(self) -> frozenset[str]:
        """The modules that have to be watched for it."""
        return frozenset(name for site in self.sites for name in site.path.modules)

    @property
    def missing(self) -> tuple[str, ...]:
        """What was not bound yet."""
        return tuple(site.path.text for site in self.sites if site.bound_in is None)

    def release(self) -> None:
        """Forgets where it was bound: it was taken back."""
        for site in self.sites:
            site.bound_in = None


@attrs.define(eq=False)
class ImportBinding:
    """One import-compatibility declaration at work.

    Attributes:
        declared: the declaration.
        module: the module whose import it acts on.
        execution: its record in the report.
        bound_in, runs: the module object that it last acted on, and which run of its body.
        freed: what it took out of a registry until the module has run.
        held: what it changed until the module has run.
        claim: of the thread that binds it.
    """

    declared: ImportDeclaration
    module: str
    execution: MemberExecution
    bound_in: Any = None
    runs: int = 0
    freed: dict[str, Any] = attrs.field(factory=dict)
    held: Change | None = None
    claim: Claim = attrs.field(factory=Claim)

    @property
    def is_bound(self) -> bool:
        return self.bound_in is not None

    @property
    def paths(self) -> tuple[str, ...]:
        return self.declared.paths

    @property
    def modules(self) -> frozenset[str]:
        """The modules that have to be watched for it."""
        return frozenset({self.module})

    @property
    def missing(self) -> tuple[str, ...]:
        """What was not bound yet."""
        return () if self.is_bound else self.paths

    def release(self) -> None:
        """Forgets where it was bound: it was taken back."""
        self.bound_in = None


@attrs.define(eq=False)
class GroupBinding:
    """One Group at work: its plan, its members, its transaction and its record in the report.

    Attributes:
        checked: whether its evidence was gathered.
        checking: the claim of the thread that gathers it.
        ending: the state and reason that it ends with, until everything was taken back.
    """

    prepared: PreparedGroup
    members: tuple[MemberBinding | ImportBinding, ...]
    execution: GroupExecution
    transaction: Transaction = attrs.field(factory=Transaction)
    checked: bool = False
    checking: Claim = attrs.field(factory=Claim)
    ending: tuple[GroupState, str] | None = None

    @property
    def id(self) -> str:
        return self.prepared.id

    @property
    def state(self) -> GroupState:
        return self.execution.state

    @property
    def is_open(self) -> bool:
        """Whether its members may be bound: no evidence speaks against it, and it has not ended."""
        return self.state.is_open and self.ending is None and self.prepared.is_possible

    def end(self, state: GroupState, reason: str) -> None:
        self.execution.state, self.execution.reason = state, reason


_KINDS = {
    ReplaceImport: "replace_import",
    ImportAlias: "import_alias",
    OptionalImport: "optional_import",
    RegistryOverride: "registry_override",
    DuringImport: "during_import",
    Inject: "inject",
}


def bindings(prepared: PreparedExecution) -> list[GroupBinding]:
    """What is to be done, and the records of it for the report, in the order of binding."""
    return [_group(group, prepared) for group in prepared.groups.values()]


def _group(group: PreparedGroup, prepared: PreparedExecution) -> GroupBinding:
    state = GroupState.PENDING
    if group.decision == "skip":
        state = GroupState.SKIPPED
    elif prepared.blocking(group):
        state = GroupState.BLOCKED  # one that depends on it ends with it
    members = tuple(map(_member, group.declared.members))
    records = [member.execution for member in members]
    reason = "" if state is GroupState.PENDING else group.reason
    return GroupBinding(group, members, GroupExecution(state, reason, records))


def _member(declared: Member) -> MemberBinding | ImportBinding:
    if isinstance(declared, Replacement):
        sites = tuple(Site(ObjectPath.parse(path)) for path in declared.paths)
        record = MemberExecution(declared.kind, declared.target, declared.aliases)
        return MemberBinding(declared, sites, record)
    record = MemberExecution(_KINDS[type(declared)], ", ".join(declared.paths))
    module = declared.target if isinstance(declared, ReplaceImport) else declared.module
    return ImportBinding(declared, module, record)
