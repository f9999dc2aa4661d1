"""Import-scoped changes: those that last as long as the body of a module runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from turbo_physai.engine.records import GroupRecord, MemberRecord

if TYPE_CHECKING:
    from turbo_physai.declarations import Importing
    from turbo_physai.engine.modules import Modules

Members = Mapping[str, Iterable[tuple[GroupRecord, MemberRecord]]]


class Scopes:
    """Lets declarations change what they need before their module runs, and takes that back."""

    def __init__(
        self,
        members: Members,
        modules: Modules,
        context: Callable[[GroupRecord, MemberRecord], Importing],
        fail: Callable[[GroupRecord, MemberRecord, Exception], None],
    ) -> None:
        self._members = members
        self._modules = modules
        self._context = context
        self._fail = fail
        # Members that may have changed something, by the name of their module.
        self._begun: dict[str, list[tuple[GroupRecord, MemberRecord]]] = {}

    def begin(self, name: str) -> None:
        """Lets the declarations on the module `name`, which is about to run, act."""
        acting = [(g, m) for g, m in self._members.get(name, ()) if m.declared.module == name]
        if acting:
            self._begun[name] = acting
        for group, member in acting:
            if group.is_open:
                try:
                    member.declared.before(self._context(group, member))
                except Exception as error:
                    self._fail(group, member, error)

    def end(self, name: str) -> None:
        """Takes back what was changed; that of a Group that has ended meanwhile as well."""
        for group, member in self._begun.get(name, ()):
            try:
                for change in list(member.scoped):
                    change.end(group.transaction, is_open=group.state.is_open)
                    member.scoped.remove(change)
            except Exception as error:
                self._fail(group, member, error)
        self._begun.pop(name, None)

    def end_lost(self) -> None:
        """Takes back what was changed for an import that was cut off: by an interrupt that left no
        time to do so, or because its thread is not part of a forked process."""
        for name in list(self._begun):
            if not self._modules.is_running(name):
                self.end(name)
