"""What a Group's own `compatibility_check` is told, and what it answers."""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs

from turbo_physai.evidence.check import Check
from turbo_physai.evidence.packages import version
from turbo_physai.evidence.repository import Repository
from turbo_physai.evidence.surroundings import backend


class CompatibilityContext(NamedTuple):
    """What is known where a Group is about to be applied.

    Attributes:
        group_id: its id.
        options: its options, as an instance of its schema.
        backend: ``cuda`` or ``cpu``.
        repository: the git work tree that its first target lies in, or None.
    """

    group_id: str
    options: Any
    backend: str
    repository: Repository | None

    @staticmethod
    def version(distribution: str) -> str | None:
        """The installed version of a distribution, or None."""
        return version(distribution)


class CompatibilityResult(NamedTuple):
    """The answer of a `compatibility_check`.

    Attributes:
        compatible: whether the Group may be applied.
        expected, actual, reason: for the report.
    """

    compatible: bool
    expected: str = ""
    actual: str = ""
    reason: str = ""


@attrs.frozen
class BackendResult:
    """What serves a fused replacement in this process: the answer of its `backend`.

    Attributes:
        name: such as ``cpu``, ``triton`` or ``torch``.
        fused: False for the formulation in PyTorch's own operators, which is right and slow.
        reason: why nothing fused serves it.
    """

    name: str
    fused: bool = True
    reason: str = ""

    def __str__(self) -> str:
        return self.name if self.fused else f"{self.name}, which is not fused: {self.reason}"


def context(group_id: str, options: Any, repository: Repository | None) -> CompatibilityContext:
    """What a `compatibility_check` is given."""
    return CompatibilityContext(group_id, options, backend(), repository)


def verdict(answer: Any, group_id: str) -> Check:
    """The check that an answer makes."""
    name = "compatibility"
    if not isinstance(answer, CompatibilityResult):
        reason = f"its compatibility_check returned {answer!r} instead of a CompatibilityResult"
        return Check(name, "fail", group_id, reason=reason)
    outcome = "pass" if answer.compatible else "fail"
    return Check(name, outcome, group_id, answer.expected, answer.actual, answer.reason)  # type: ignore[arg-type]
