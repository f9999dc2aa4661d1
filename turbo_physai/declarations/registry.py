"""The Registry: declared Groups by id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turbo_physai.declarations.group import Group

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Registry:
    """The declared Groups, by id, in the order in which they were added."""

    def __init__(self, groups: Iterable[Group] = ()) -> None:
        self._groups: dict[str, Group] = {}
        for each in groups:
            self.add(each)

    def add(self, declared: Group) -> None:
        """Adds a Group. Adding an equal one again changes nothing.

        Raises:
            TypeError: it is no Group.
            ValueError: a different Group has that id.
        """
        if not isinstance(declared, Group):
            raise TypeError(f"a Registry holds Groups, found {declared!r}")
        if self._groups.setdefault(declared.id, declared) != declared:
            raise ValueError(f"two different Groups have the id {declared.id!r}")

    def __getitem__(self, group_id: str) -> Group:
        return self._groups[group_id]

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._groups)
