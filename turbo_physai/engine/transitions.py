"""How Groups go from one state to the next: applied, blocked, rolled back, failed, not started."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from turbo_physai.engine.plain import text
from turbo_physai.engine.records import Failure, GroupRecord, GroupState, MemberRecord, Records
from turbo_physai.engine.slot import TargetError
from turbo_physai.engine.transaction import RestoreError

if TYPE_CHECKING:
    from turbo_physai.engine.listener import Listener


class Transitions:
    """Brings Groups to the states that their evidence and members call for. Each method takes the
    lock of the records itself."""

    def __init__(
        self,
        records: Records,
        listener: Listener,
        take_back: Callable[[GroupRecord], None],
        has_applied: Callable[[GroupRecord], None],
    ) -> None:
        self._records = records
        self._listener = listener
        self._take_back = take_back
        self._has_applied = has_applied

    def is_ready(self, group: GroupRecord) -> bool:
        """Whether its members may be bound: it is open and what it depends on is applied."""
        groups = self._records.groups
        return group.is_open and all(
            groups[id_].state is GroupState.APPLIED for id_ in group.depends_on
        )

    def complete(self) -> None:
        """Completes for all Groups what an exception or a fork has cut short; see `update`."""
        self.update(
            [
                group
                for group in self._records.groups.values()
                if group.ending is not None or group.prepared.decision == "block"
            ]
        )

    def update(self, groups: Iterable[GroupRecord]) -> None:
        """Brings Groups to the state that is called for.

        Raises:
            OptimizationRollbackError: what a Group had changed could not be taken back.
        """
        for group in list(groups):
            if group.ending is None and not group.state.is_open:
                continue
            with self._records.lock:
                if group.ending is not None:
                    self._complete_ending(group)
                elif self._is_blocked(group):
                    self._end(group, GroupState.BLOCKED, group.prepared.reason)
                elif group.state is GroupState.PENDING and all(m.is_bound for m in group.members):
                    self._has_applied(group)
                    self._to(group, GroupState.APPLIED, "")

    def fail(self, group: GroupRecord, member: MemberRecord | None, error: BaseException) -> None:
        """Ends a Group for an error while a member was bound.

        Raises:
            OptimizationRollbackError: what it had changed could not be taken back.
        """
        is_check = isinstance(error, TargetError)
        where = f"{member.target}: " if member is not None else ""
        reason = where + ("" if is_check else f"{type(error).__name__}: ") + text(error)
        try:
            with self._records.lock:
                record = group if member is None else member
                record.error = Failure.of(error)
                self._records.touch(group)
                if group.state.is_open:
                    first = GroupState.BLOCKED if is_check else GroupState.ROLLED_BACK
                    self._end(group, first, reason)
        finally:
            self._listener.changed(settled=False)

    def abandon(self, group: GroupRecord, reason: str) -> None:
        """Ends a pending Group that will not be completed any more, and leaves what it bound."""
        if group.state is GroupState.PENDING:
            self._to(group, GroupState.NOT_STARTED, reason)

    def leave_out(self, group: GroupRecord, reason: str) -> None:
        """Ends a pending Group that was not needed."""
        self._to(group, GroupState.SKIPPED, reason)

    def abandon_dependents(self) -> None:
        """Ends every Group that depends on one that will never be applied."""
        groups = self._records.groups
        with self._records.lock:
            for group in self._records.dependents:
                for id_ in group.depends_on:
                    needed = groups[id_].state
                    if not needed.is_open and group.state.is_open:
                        self.abandon(group, f"depends on {id_}, which is {needed.value}")

    def _to(self, group: GroupRecord, state: GroupState, reason: str) -> None:
        self._records.touch(group)
        group.to(state, reason)

    def _is_blocked(self, group: GroupRecord) -> bool:
        """Whether evidence speaks against it; one that depends on such a Group ends with that."""
        if group.prepared.decision != "block":
            return False
        return bool(self._records.prepared.blocking(group.prepared))

    def _end(self, group: GroupRecord, unchanged: GroupState, reason: str) -> None:
        """Ends a Group in the state `unchanged`, or rolled back if there is anything to take back.

        `ending` is set first: whatever interrupts the rest, `update` completes it.
        """
        state = GroupState.ROLLED_BACK if group.transaction else unchanged
        group.ending = state, reason
        self._complete_ending(group)

    def _complete_ending(self, group: GroupRecord) -> None:
        assert group.ending is not None
        # Closed first: nothing of it may be bound while it is taken back.
        self._to(group, *group.ending)
        state, reason = group.ending
        for dependent in self._records.dependents:
            needs = group.id in dependent.depends_on
            if needs and dependent.state.is_open and dependent.ending is None:
                why = f"depends on {group.id}, which is {state.value}"
                self._end(dependent, GroupState.NOT_STARTED, why)
        try:
            group.transaction.undo()
        except RestoreError as error:
            self._to(group, GroupState.FAILED, f"{reason}; not restored: {error}")
            group.ending = None
            message = f"the Group {group.id} could not be restored: {error}"
            raise self._listener.rollback_error(message) from error
        self._take_back(group)
        self._records.touch(group)
        for member in group.members:
            member.release()
        group.ending = None
