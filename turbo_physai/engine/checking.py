"""Gathers evidence for Groups when their modules are imported, and lets the plan decide."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from turbo_physai.engine.records import GroupRecord, MemberRecord, Records
from turbo_physai.evidence.gather import Evidence

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from turbo_physai.declarations import ObjectPath
    from turbo_physai.engine.transitions import Transitions


class Checking:
    """Completes the evidence in the records of Groups, and ends those that it blocks."""

    def __init__(self, records: Records, transitions: Transitions) -> None:
        self._records = records
        self._transitions = transitions

    def gather(self, group: GroupRecord, spec: ModuleSpec | None = None) -> bool:
        """Gathers the evidence for a Group: of all members the first time, later of those whose
        module runs again. Tells whether the Group may be bound by this thread now."""
        with self._records.lock:
            if group.checking.is_held:  # that thread will bind what waits once it has the evidence
                return False
            group.checking.take(sys._getframe())
            first = not group.checked
        examiner = group.prepared.examiner
        try:
            again = spec is not None and not first
            found = examiner.gather_again(spec) if again and spec else examiner.gather(spec)
        except Exception as error:
            self._transitions.fail(group, None, error)
            found = Evidence([], [])
        with self._records.lock:
            group.checked = True
            group.checking.release()
        return self._decide(group, found)

    def confirm(
        self, group: GroupRecord, member: MemberRecord, paths: Sequence[ObjectPath]
    ) -> bool:
        """Completes what the source left open about objects that are there now. Tells whether the
        Group may be bound."""
        if not group.prepared.leaves_open(paths):
            return True
        return self._decide(group, group.prepared.examiner.confirm(member.declared, paths))

    def _decide(self, group: GroupRecord, found: Evidence) -> bool:
        with self._records.lock:
            decided = self._records.take(group, found)
        self._transitions.update(decided)
        return group.is_open
