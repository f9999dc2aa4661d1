"""How Groups end: applied, blocked, rolled back, failed, or never started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from turbo_physai.engine.slot import TargetError
from turbo_physai.engine.transaction import RestoreError
from turbo_physai.errors import OptimizationRollbackError
from turbo_physai.report import Failure, GroupState, MemberState
from turbo_physai.report.plain import text

if TYPE_CHECKING:
    from turbo_physai.engine.state import GroupBinding, ImportBinding, MemberBinding
    from turbo_physai.report import OptimizationReport


class Outcomes:
    """The transitions between Group states. Each takes the report's lock itself."""

    def __init__(
        self,
        report: OptimizationReport,
        groups: Mapping[str, GroupBinding],
        take_back: Callable[[GroupBinding], None],
    ) -> None:
        self._report = report
        self._groups = groups
        self._take_back = take_back

    def is_ready(self, group: GroupBinding) -> bool:
        """Whether its members may be bound: it is open and what it depends on is applied."""
        needed = group.prepared.declared.depends_on
        return group.is_open and all(
            self._groups[id_].state is GroupState.APPLIED for id_ in needed
        )

    def update(self) -> None:
        """Brings every Group to the state that its evidence and its members call for. What an
        exception or a fork has cut short is completed here.

        Raises:
            OptimizationRollbackError: what a Group had changed could not be taken back.
        """
        for group in self._groups.values():
            with self._report.lock:
                if group.ending is not None:
                    self._complete_ending(group)
                elif group.state.is_open and self._is_blocked(group):
                    self._end(group, GroupState.BLOCKED, group.prepared.reason)
                elif group.state is GroupState.PENDING and all(m.is_bound for m in group.members):
                    group.end(GroupState.APPLIED, "")

    def _is_blocked(self, group: GroupBinding) -> bool:
        """Whether evidence speaks against it; one that depends on such a Group ends with that."""
        prepared = self._report.prepared_execution
        return group.prepared.decision == "block" and bool(prepared.blocking(group.prepared))

    def fail(
        self,
        group: GroupBinding,
        member: MemberBinding | ImportBinding | None,
        error: BaseException,
    ) -> None:
        """Ends a Group for an error while a member was bound.

        Raises:
            OptimizationRollbackError: what it had changed could not be taken back.
        """
        is_check = isinstance(error, TargetError)
        where = f"{member.execution.target}: " if member is not None else ""
        reason = where + ("" if is_check else f"{type(error).__name__}: ") + text(error)
        try:
            with self._report.lock:
                record = group.execution if member is None else member.execution
                record.error = Failure.of(error)
                if group.state.is_open:
                    first = GroupState.BLOCKED if is_check else GroupState.ROLLED_BACK
                    self._end(group, first, reason)
        finally:
            self._report.changed()

    def abandon(self, group: GroupBinding, reason: str) -> None:
        """Ends a pending Group that will not be completed any more, and leaves what it bound."""
        if group.state is GroupState.PENDING:
            group.end(GroupState.NOT_STARTED, reason)

    def abandon_dependents(self) -> None:
        """Ends every Group that depends on one that will never be applied."""
        with self._report.lock:
            for group in self._groups.values():
                for id_ in group.prepared.declared.depends_on:
                    needed = self._groups[id_].state
                    if not needed.is_open and group.state.is_open:
                        self.abandon(group, f"depends on {id_}, which is {needed.value}")

    def _end(self, group: GroupBinding, unchanged: GroupState, reason: str) -> None:
        """Ends a Group in the state `unchanged`, or rolled back if there is anything to take back.

        `ending` is set first: whatever interrupts the rest, `update` completes it.
        """
        state = GroupState.ROLLED_BACK if group.transaction else unchanged
        group.ending = state, reason
        self._complete_ending(group)

    def _complete_ending(self, group: GroupBinding) -> None:
        assert group.ending is not None
        # Closed first: nothing of it may be bound while it is taken back.
        group.end(*group.ending)
        state, reason = group.ending
        for dependent in self._groups.values():
            needs = group.id in dependent.prepared.declared.depends_on
            if needs and dependent.state.is_open and dependent.ending is None:
                why = f"depends on {group.id}, which is {state.value}"
                self._end(dependent, GroupState.NOT_STARTED, why)
        try:
            group.transaction.undo()
        except RestoreError as error:
            group.ending = GroupState.FAILED, f"{reason}; not restored: {error}"
            group.end(*group.ending)
            group.ending = None
            message = f"the Group {group.id} could not be restored: {error}"
            raise OptimizationRollbackError(message, self._report) from error
        self._take_back(group)
        for member in group.members:
            if member.execution.state is MemberState.BOUND:
                member.execution.state = MemberState.RESTORED
            member.release()
        group.ending = None
