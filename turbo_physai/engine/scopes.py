"""Import-scoped changes: those that last as long as the body of a module runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from turbo_physai.engine import imports
from turbo_physai.engine.state import GroupBinding, ImportBinding

if TYPE_CHECKING:
    from turbo_physai.engine.modules import Modules

Fail = Callable[[GroupBinding, ImportBinding, Exception], None]


class Scopes:
    """Makes the changes of import declarations before their module runs, and takes them back."""

    def __init__(self, groups: Iterable[GroupBinding], modules: Modules, fail: Fail) -> None:
        self._modules = modules
        self._fail = fail
        self._members = [
            (group, member)
            for group in groups
            for member in group.members
            if isinstance(member, ImportBinding)
        ]

    def begin(self, name: str) -> None:
        """Makes the changes for the time that the module `name` runs."""
        for group, member in self._members:
            if member.module == name and group.is_open:
                self._act(imports.begin, group, member)

    def end(self, name: str) -> None:
        """Takes them back; those of a Group that has ended meanwhile as well."""
        for group, member in self._members:
            if member.module == name:
                self._act(imports.end, group, member)

    def end_lost(self) -> None:
        """Takes back what was changed for an import that was cut off: by an interrupt that left no
        time to do so, or because its thread is not part of a forked process."""
        for group, member in self._members:
            is_live = member.held is not None or member.freed
            if is_live and not self._modules.is_running(member.module):
                self._act(imports.end, group, member)

    def _act(
        self,
        act: Callable[[GroupBinding, ImportBinding], None],
        group: GroupBinding,
        member: ImportBinding,
    ) -> None:
        try:
            act(group, member)
        except Exception as error:
            self._fail(group, member, error)
