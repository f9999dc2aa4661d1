"""Every error that turbo_physai raises on purpose, under one root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class TurboPhysAIError(Exception):
    """Root of all errors raised by turbo_physai."""


class Fault(NamedTuple):
    """One thing that is wrong in what the user gave.

    Attributes:
        where: the file, or the parameter, option or variable, that holds it.
        line: line in that file, counted from 1; None where there is no file.
        key: path of the key inside it, such as ``optimization_groups[0].enabled``.
        found: what stands there.
        accepted: what may stand there.
    """

    where: str
    found: str
    accepted: str
    key: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = self.where if self.line is None else f"{self.where}:{self.line}"
        key = f" {self.key}:" if self.key else ""
        return f"{place}:{key} found {self.found}; accepted: {self.accepted}"


class OptimizationConfigError(TurboPhysAIError):
    """The configuration is wrong. `faults` holds everything that was found wrong in it at once."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = faults
        super().__init__("\n".join(map(str, faults)))


class OptimizationConfigNotFoundError(TurboPhysAIError):
    """No OptimizationConfig lies where one was asked for."""


class OptimizationNotAppliedError(TurboPhysAIError):
    """Groups that were required are not applied.

    Attributes:
        groups: state and reason of each, by id.
        report: the OptimizationReport at that moment.
    """

    def __init__(self, groups: Mapping[str, str], report: Any) -> None:
        self.groups = dict(groups)
        self.report = report
        super().__init__("; ".join(f"{id_} is {why}" for id_, why in groups.items()))


class OptimizationRollbackError(TurboPhysAIError):
    """A Group could not be restored: this process runs code that nobody chose.

    The only error that leaves the model's own import statement. `report` is the OptimizationReport
    at that moment.
    """

    def __init__(self, message: str, report: Any = None) -> None:
        self.report = report
        super().__init__(message)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'factor'?`` with the nearest of the `known` names; empty if none is near."""
    from difflib import get_close_matches  # wanted where something is wrong, and slow to import

    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""
