"""The records of a run: one per Group, with one per member. The engine writes them; the report only
reads."""

from __future__ import annotations

import threading
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import attrs

from turbo_physai.engine.calls import Calls, Verification
from turbo_physai.engine.claims import Claim
from turbo_physai.engine.plain import text
from turbo_physai.engine.transaction import ScopedChange, Transaction

if TYPE_CHECKING:
    from collections.abc import Iterable

    from turbo_physai.declarations import Declaration, ObjectPath
    from turbo_physai.engine.exchange import Exchange
    from turbo_physai.evidence import BackendResult, Check
    from turbo_physai.evidence.gather import Evidence
    from turbo_physai.plan import PreparedExecution, PreparedGroup


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


_ENDS: Final = frozenset(
    {GroupState.BLOCKED, GroupState.ROLLED_BACK, GroupState.FAILED, GroupState.NOT_STARTED}
)
# From each state, those that a Group may go on to. It begins as pending, skipped or blocked.
TRANSITIONS: Final = {
    GroupState.PENDING: frozenset({GroupState.APPLIED, GroupState.SKIPPED, *_ENDS}),
    GroupState.APPLIED: _ENDS,
    # Restoring begins in these states, and may fail.
    GroupState.BLOCKED: frozenset({GroupState.FAILED}),
    GroupState.ROLLED_BACK: frozenset({GroupState.FAILED}),
    GroupState.NOT_STARTED: frozenset({GroupState.FAILED}),
    GroupState.SKIPPED: frozenset(),
    GroupState.FAILED: frozenset(),
}


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
        import traceback

        lines = "".join(traceback.format_exception(error))
        return cls(type(error).__name__, text(error), lines)

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


@attrs.define(eq=False)
class Site:
    """One place that a member changes, and what became of it.

    Attributes:
        paths: what it is called in reports.
        path: the target or alias; None for a declaration that acts on a module.
        module: the module that it lies in; None until that can be told.
        bound_in: the module object in which it was last bound.
        runs: which run of that module's body.
    """

    paths: tuple[str, ...]
    path: ObjectPath | None = None
    module: str | None = None
    bound_in: Any = None
    runs: int = 0

    def is_bound(self, module: Any, runs: int) -> bool:
        return self.bound_in is module and self.runs == runs

    def bind(self, module: Any, runs: int) -> None:
        self.bound_in, self.runs = module, runs


@attrs.define(eq=False)
class MemberRecord:
    """One declaration of a Group, and what became of it.

    Attributes:
        declared: the declaration.
        sites: the places that it changes, its target first.
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
        metrics: what the replacement reports of itself while it works.
        backend: what serves the replacement in this process, where that is known.
        error: what went wrong.
        verification: how its calls compared with those of the original, where they are compared.
        exchanges: the objects that were exchanged, one pair per run of the target's module.
        scoped: what it has changed until its module has run.
        was_provided: whether it has answered for the import of its module.
        waits_for: a module that was still being imported when it was needed.
        claim: of the function call that binds it.
    """

    declared: Declaration
    sites: tuple[Site, ...]
    state: MemberState = MemberState.WAITING
    module: str | None = None
    original: Origin | None = None
    replacement: Origin | None = None
    seconds: float | None = None
    times_bound: int = 0
    captured: list[str] = attrs.field(factory=list)
    left: list[str] = attrs.field(factory=list)
    note: str = ""
    metrics: dict[str, Any] = attrs.field(factory=dict)
    backend: BackendResult | None = None
    error: Failure | None = None
    verification: Verification | None = None
    exchanges: list[Exchange] = attrs.field(factory=list)
    scoped: list[ScopedChange] = attrs.field(factory=list)
    was_provided: bool = False
    waits_for: str | None = None
    claim: Claim = attrs.field(factory=Claim)

    @classmethod
    def of(cls, declared: Declaration) -> MemberRecord:
        targets = [Site((path,), path) for path in declared.targets]
        return cls(declared, tuple(targets or [Site(declared.paths, module=declared.module)]))

    @property
    def kind(self) -> str:
        return self.declared.kind

    @property
    def target(self) -> str:
        """What it changes, as reports call it."""
        return ", ".join(self.sites[0].paths)

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(path for site in self.sites[1:] for path in site.paths)

    @property
    def exchange(self) -> Exchange | None:
        """The latest of them."""
        return self.exchanges[-1] if self.exchanges else None

    @property
    def calls(self) -> Calls | None:
        """Its calls, over all that was put in place; None where nothing counts them."""
        counted = [each.calls for each in self.exchanges if each.calls is not None]
        if not counted:
            return None
        return Calls(
            sum(each.replacement for each in counted),
            sum(each.original for each in counted),
            next((each.first_original for each in counted if each.first_original), ""),
            any(each.is_compiled for each in counted),
        )

    @property
    def has_condition(self) -> bool:
        """Whether a runtime_condition chooses between replacement and original."""
        return any(each.has_condition for each in self.exchanges)

    @property
    def is_bound(self) -> bool:
        return all(site.bound_in is not None for site in self.sites)

    @property
    def missing(self) -> list[Site]:
        """The places that were not bound yet."""
        return [site for site in self.sites if site.bound_in is None]

    def release(self) -> None:
        """Forgets where it was bound: it was taken back."""
        if self.state is MemberState.BOUND:
            self.state = MemberState.RESTORED
        for site in self.sites:
            site.bound_in = None


@attrs.define(eq=False)
class GroupRecord:
    """One Group: what was decided for it, and what became of it.

    Attributes:
        prepared: the Group, its entry in the config, its evidence and the decision.
        members: its members.
        state: how far it has come.
        reason: why it has ended so.
        warnings: what its replacements warn of.
        error: what went wrong, where that concerns no single member.
        transaction: what it has changed.
        checked: whether its evidence was gathered.
        checking: the claim of the function call that gathers it.
        ending: the state and reason that it ends with, until everything was taken back.
        revision: counts the changes of what a report shows of it.
    """

    prepared: PreparedGroup
    members: tuple[MemberRecord, ...]
    state: GroupState = GroupState.PENDING
    reason: str = ""
    warnings: list[str] = attrs.field(factory=list)
    error: Failure | None = None
    transaction: Transaction = attrs.field(factory=Transaction)
    checked: bool = False
    checking: Claim = attrs.field(factory=Claim)
    ending: tuple[GroupState, str] | None = None
    revision: int = 0

    @property
    def id(self) -> str:
        return self.prepared.id

    @property
    def depends_on(self) -> tuple[str, ...]:
        return self.prepared.declared.depends_on

    @property
    def is_open(self) -> bool:
        """Whether its members may be bound: no evidence speaks against it, and it has not ended."""
        return self.state.is_open and self.ending is None and self.prepared.is_possible

    @property
    def counts(self) -> tuple[object, ...]:
        """What is counted of the calls of its members, without a change of `revision`; empty if
        nothing is."""
        counted = [member.calls for member in self.members]
        if all(calls is None for calls in counted):
            return ()
        return tuple(each and (each.replacement, each.original) for each in counted)

    def to(self, state: GroupState, reason: str) -> None:
        """Goes on to another state."""
        if state is not self.state and state not in TRANSITIONS[self.state]:
            raise AssertionError(f"{self.id}: {self.state.value} to {state.value}")
        self.state, self.reason = state, reason

    def warn(self, warning: str) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)

    @property
    def unused(self) -> str:
        """Where it is applied, and nothing of it ever ran: in which way. Empty if something did, or
        nothing tells."""
        counted = [member.calls for member in self.members]
        calls = [each for each in counted if each is not None]
        has_run = any(each.replacement or each.is_compiled for each in calls)
        if self.state is not GroupState.APPLIED or len(calls) < len(counted) or has_run:
            return ""
        originals = sum(each.original for each in calls)
        if originals:
            return f"its runtime_condition sent every call ({originals}) to the original"
        return "never called in this process"


class Records:
    """The records of all Groups by id, in the order in which they bind.

    Attributes:
        prepared: what was decided.
        groups: the records.
        dependents: those of Groups that depend on others.
        lock: guards all of it; see `Engine`.
        revision: counts the changes, so that a reader can tell whether there was any.
    """

    def __init__(self, prepared: PreparedExecution) -> None:
        self.prepared = prepared
        self.groups = {id_: self._record(group) for id_, group in prepared.groups.items()}
        self.dependents = [group for group in self.groups.values() if group.depends_on]
        self.lock = threading.RLock()
        self.revision = 0

    def _record(self, group: PreparedGroup) -> GroupRecord:
        members = tuple(map(MemberRecord.of, group.declared.members))
        if group.decision == "skip":
            return GroupRecord(group, members, GroupState.SKIPPED, group.reason)
        if self.prepared.blocking(group):
            return GroupRecord(group, members, GroupState.BLOCKED, group.reason)
        return GroupRecord(group, members)  # one that depends on a blocked one ends with it

    def touch(self, *groups: GroupRecord) -> None:
        """Notes that what a report shows of these Groups has changed."""
        self.revision += 1
        for group in groups:
            group.revision += 1

    def note_calls(self) -> None:
        """Takes in, as the process ends, which Groups were used."""
        for group in self.groups.values():
            if unused := group.unused:
                group.warn(f"applied, but {unused}; calls inside torch.compile are not counted")
            if any(member.calls is not None for member in group.members):
                self.touch(group)

    def add_check(self, group: GroupRecord, check: Check) -> None:
        """Takes in one more check of a Group."""
        self.touch(*self._groups(self.prepared.add_to(group.prepared, [check])))

    def take(self, group: GroupRecord, found: Evidence) -> list[GroupRecord]:
        """Takes in evidence; returns the Groups for which was decided anew."""
        decided = self._groups(self.prepared.take(group.prepared, found))
        self.touch(*decided)
        return decided

    def _groups(self, ids: Iterable[str]) -> list[GroupRecord]:
        return [self.groups[id_] for id_ in ids]
