"""Metrics: what a Replacement reports of itself while it works, such as how often it was compiled.

They are set in the middle of a training step, so nothing here raises into the model.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from turbo_physai.engine.plain import plain
from turbo_physai.engine.plain import text as text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turbo_physai.engine.listener import Listener
    from turbo_physai.engine.records import GroupRecord, MemberRecord, Records

_NAMES: Final = 100
_WARNINGS: Final = 100


class Metrics(Protocol):
    """The metrics of one Replacement."""

    def set(self, **values: Any) -> None:
        """Sets metrics by name.

        Any value is accepted and copied. The report holds it as JSON data; what JSON has no form
        for, as text; and what is too deep or too large, cut. At most 100 names are kept.
        """

    def warn(self, text: str) -> None:
        """Adds a warning to the Replacement's Group, once; at most 100 are kept."""


def metrics() -> Metrics:
    """The metrics of the Replacement whose wrapper factory is running.

    Ask for them in the factory, keep the answer, and use it at any later time, in any thread.
    Elsewhere the answer discards what it is given.
    """
    return _current.get()


@attrs.frozen(eq=False)
class RecordedMetrics:
    """The metrics of one member of a Group in its record."""

    records: Records
    listener: Listener
    group: GroupRecord
    member: MemberRecord

    def set(self, **values: Any) -> None:
        with _quietly():
            made = {str(plain(name)): plain(value) for name, value in values.items()}
            with self.records.lock:
                self.records.touch(self.group)
                held = self.member.metrics
                for name, value in made.items():
                    if name in held or len(held) < _NAMES:
                        held[name] = value
            self.listener.save()

    def warn(self, text: str) -> None:
        with _quietly():
            made = text_of(text)
            with self.records.lock:
                self.records.touch(self.group)
                if len(self.group.warnings) < _WARNINGS:
                    self.group.warn(made)
            self.listener.save()


@contextmanager
def _quietly() -> Iterator[None]:
    try:
        yield
    except Exception:
        import logging

        logger = logging.getLogger("turbo_physai")
        logger.debug("turbo_physai: metrics were not saved", exc_info=True)


@contextmanager
def collecting(into: Metrics) -> Iterator[None]:
    """Makes `into` what `metrics` answers within."""
    token = _current.set(into)
    try:
        yield
    finally:
        _current.reset(token)


class NullMetrics:
    """Discards everything."""

    def set(self, **values: Any) -> None:
        pass

    def warn(self, text: str) -> None:
        pass


_current: Final[ContextVar[Metrics]] = ContextVar("metrics", default=NullMetrics())  # noqa: B039
