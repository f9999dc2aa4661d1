"""Follows captured references over time: some holders are modules that are still being imported."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import attrs

from turbo_physai.engine import binding
from turbo_physai.engine.captured import when_finished
from turbo_physai.engine.state import GroupBinding, MemberBinding

if TYPE_CHECKING:
    from turbo_physai.engine.modules import Modules
    from turbo_physai.report import OptimizationReport


@attrs.frozen(eq=False)
class _Later:
    """What could not be looked for yet, and in which modules."""

    group: GroupBinding
    member: MemberBinding
    exchange: binding.Exchange
    modules: set[str]


class References:
    """Changes references that were captured before a target was bound, and takes them back after
    its Group has ended. Whoever calls it holds the report's lock, but for `look_again`."""

    def __init__(
        self, report: OptimizationReport, modules: Modules, declared: Container[str]
    ) -> None:
        self._report = report
        self._modules = modules
        self._declared = declared
        self._later: list[_Later] = []

    def rebind(
        self, group: GroupBinding, member: MemberBinding, exchange: binding.Exchange
    ) -> None:
        """Changes who holds the old object of an exchange."""
        self._note(_Later(group, member, exchange, self._rebind(group, member, exchange)))

    def take_back(self, group: GroupBinding) -> None:
        """Takes back from others what they took from the targets of a Group while it was live."""
        for member in group.members:
            if isinstance(member, MemberBinding):
                for exchange in reversed(member.exchanges):
                    unfinished = binding.take_back(member, exchange, self._modules)
                    self._note(_Later(group, member, exchange, unfinished))

    def look_again(self) -> None:
        """Looks into the modules that have ended since."""
        with self._report.lock:
            waiting, self._later = self._later, []
            for each in waiting:
                if not each.group.state.is_open:
                    unfinished = binding.take_back(
                        each.member, each.exchange, self._modules, each.modules
                    )
                elif each.member.exchange is each.exchange:
                    unfinished = self._rebind(each.group, each.member, each.exchange, each.modules)
                else:  # the target's module has run again and been bound anew
                    continue
                if unfinished:
                    self._later.append(attrs.evolve(each, modules=unfinished))

    def _rebind(
        self,
        group: GroupBinding,
        member: MemberBinding,
        exchange: binding.Exchange,
        only: set[str] | None = None,
    ) -> set[str]:
        home = member.sites[0].module or ""
        return binding.rebind(
            group.transaction, member, exchange, home, self._modules, self._declared, only
        )

    def _note(self, later: _Later) -> None:
        if later.modules:
            self._later.append(later)
            for name in later.modules:
                when_finished(name, self._import_has_ended)

    def _import_has_ended(self) -> None:
        self.look_again()
        self._report.changed()
