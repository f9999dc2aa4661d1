"""What a Replacement tells of itself while it works, such as how often it was compiled."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turbo_physai.report.execution import GroupExecution, MemberExecution
    from turbo_physai.report.report import OptimizationReport


class Facts(Protocol):
    """Where one Replacement writes what the report should say of it."""

    def tell(self, **facts: Any) -> None:
        """Sets facts by name; plain data that JSON can hold."""

    def warn(self, text: str) -> None:
        """Adds a warning to the Replacement's Group, once."""


def facts() -> Facts:
    """The facts of the Replacement whose wrapper factory is running; to be asked for in the
    factory, kept, and written to at any later time. Elsewhere they are written to nobody."""
    return _current.get()


@attrs.frozen(eq=False)
class ReportedFacts:
    """The facts of one member of a Group in the report."""

    report: OptimizationReport
    group: GroupExecution
    member: MemberExecution

    def tell(self, **facts: Any) -> None:
        with self.report.lock:
            self.member.facts.update(facts)
        self.report.save()

    def warn(self, text: str) -> None:
        with self.report.lock:
            self.group.warn(text)
        self.report.save()


@contextmanager
def telling(told: Facts) -> Iterator[None]:
    """Makes `told` what `facts` answers within."""
    token = _current.set(told)
    try:
        yield
    finally:
        _current.reset(token)


class _Unheard:
    def tell(self, **facts: Any) -> None:
        pass

    def warn(self, text: str) -> None:
        pass


_NOBODY: Final = _Unheard()
_current: Final[ContextVar[Facts]] = ContextVar("facts", default=_NOBODY)
