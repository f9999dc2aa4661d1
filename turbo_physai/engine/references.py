"""Follows captured references over time: some holders are modules that are still being imported."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING

import attrs

from turbo_physai.engine.exchange import Exchange
from turbo_physai.engine.rebinding import rebind, take_back
from turbo_physai.engine.records import GroupRecord, MemberRecord, Records

if TYPE_CHECKING:
    from turbo_physai.engine.modules import Modules


@attrs.frozen(eq=False)
class PendingSearch:
    """A search that has to be repeated in modules that were still being imported."""

    group: GroupRecord
    member: MemberRecord
    exchange: Exchange
    modules: set[str]


class References:
    """Changes references that were captured before a target was bound, and takes them back after
    its Group has ended. Whoever calls it holds the records' lock, but for `retry_pending`, which is
    called again after the import of a module that was given to `follow` has ended."""

    def __init__(
        self,
        records: Records,
        modules: Modules,
        declared: Container[str],
        follow: Callable[[str], None],
    ) -> None:
        self._records = records
        self._modules = modules
        self._declared = declared
        self._follow = follow
        self._pending: list[PendingSearch] = []

    def rebind(self, group: GroupRecord, member: MemberRecord, exchange: Exchange) -> None:
        """Changes who holds the old object of an exchange."""
        self._note(PendingSearch(group, member, exchange, self._rebind(group, member, exchange)))

    def take_back(self, group: GroupRecord) -> None:
        """Takes back from others what they took from the targets of a Group while it was live."""
        for member in group.members:
            for exchange in reversed(member.exchanges):
                unfinished = take_back(member, exchange, self._modules)
                self._note(PendingSearch(group, member, exchange, unfinished))

    def retry_pending(self) -> None:
        """Looks into the modules whose import has ended since."""
        with self._records.lock:
            for each in list(self._pending):
                unfinished = self._retry(each)
                self._records.touch(each.group)
                if unfinished and unfinished != each.modules:
                    self._pending.append(attrs.evolve(each, modules=unfinished))
                if unfinished != each.modules and each in self._pending:
                    self._pending.remove(each)

    def _retry(self, search: PendingSearch) -> set[str]:
        """The modules that have to be searched still."""
        member, exchange = search.member, search.exchange
        if not search.group.state.is_open:
            return take_back(member, exchange, self._modules, search.modules)
        if member.exchange is exchange:
            return self._rebind(search.group, member, exchange, search.modules)
        return set()  # the target's module has run again and been bound anew

    def _rebind(
        self,
        group: GroupRecord,
        member: MemberRecord,
        exchange: Exchange,
        only: set[str] | None = None,
    ) -> set[str]:
        home = member.sites[0].module or ""
        return rebind(
            group.transaction, member, exchange, home, self._modules, self._declared, only
        )

    def _note(self, search: PendingSearch) -> None:
        if search.modules:
            self._pending.append(search)
            for name in search.modules:
                self._follow(name)
