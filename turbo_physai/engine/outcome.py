"""How Groups end: applied, blocked, rolled back, failed, or never started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from turbo_physai.engine.slot import TargetError
from turbo_physai.engine.transaction import RestoreError
from turbo_physai.errors import OptimizationRollbackError
from turbo_physai.report import Failure, GroupState, MemberState

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
        return group.state.is_open and all(
            self._groups[id_].state is GroupState.APPLIED for id_ in needed
        )

    def complete(self, group: GroupBinding) -> None:
        """Notes that a member was bound; with the last one the Group is applied."""
        if group.state is GroupState.PENDING and all(m.is_bound for m in group.members):
            group.end(GroupState.APPLIED, "")

    def block(self, group: GroupBinding, reason: str) -> None:
        """Ends a Group for a failed check; what it has changed by now is taken back."""
        with self._report.lock:
            if group.state.is_open:
                self._end(group, self._ended_as(group, GroupState.BLOCKED), reason)
        self._report.changed()

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
        reason = f"{where}{error if is_check else f'{type(error).__name__}: {error}'}"
        try:
            with self._report.lock:
                record = group.execution if member is None else member.execution
                record.error = Failure.of(error)
                if group.state.is_open:
                    first = GroupState.BLOCKED if is_check else GroupState.ROLLED_BACK
                    self._end(group, self._ended_as(group, first), reason)
        finally:
            self._report.changed()

    def strand(self, group: GroupBinding, reason: str) -> None:
        """Ends a pending Group that will not be completed any more, and leaves what it bound."""
        if group.state is GroupState.PENDING:
            group.end(GroupState.NOT_STARTED, reason)

    def strand_dependents(self) -> None:
        """Ends every Group that depends on one that will never be applied."""
        with self._report.lock:
            for group in self._groups.values():
                for id_ in group.prepared.declared.depends_on:
                    needed = self._groups[id_].state
                    if not needed.is_open and group.state.is_open:
                        self.strand(group, f"depends on {id_}, which is {needed.value}")

    @staticmethod
    def _ended_as(group: GroupBinding, unchanged: GroupState) -> GroupState:
        return GroupState.ROLLED_BACK if group.transaction else unchanged

    def _end(self, group: GroupBinding, state: GroupState, reason: str) -> None:
        # Closed first: nothing of it may be bound while it is taken back.
        group.end(state, reason)
        for dependent in self._groups.values():
            if group.id in dependent.prepared.declared.depends_on and dependent.state.is_open:
                why = f"depends on {group.id}, which is {state.value}"
                self._end(dependent, self._ended_as(dependent, GroupState.NOT_STARTED), why)
        try:
            group.transaction.undo()
        except RestoreError as error:
            group.end(GroupState.FAILED, f"{reason}; not restored: {error}")
            message = f"the Group {group.id} could not be restored: {error}"
            raise OptimizationRollbackError(message, self._report) from error
        self._take_back(group)
        for member in group.members:
            if member.execution.state is MemberState.BOUND:
                member.execution.state = MemberState.RESTORED
            member.release()
