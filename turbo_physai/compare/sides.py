"""The sides of a comparison: which Groups each leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from turbo_physai.errors import Fault, OptimizationConfigError

WITH: Final = "with"
WITHOUT: Final = "without"

# What a rank says of each Group: `state` and `compatibility`.
Groups = Mapping[str, Mapping[str, Any]]


@attrs.frozen
class Side:
    """One side.

    Attributes:
        name: ``with``, ``without``, or ``without ID``.
        disabled: the ids of the Groups that are not applied, besides those which the user leaves
            out of both sides.
        applied: the ids of those that are, once a run has told.
    """

    name: str
    disabled: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()

    @property
    def group(self) -> str | None:
        """The one Group that an ablation leaves out here."""
        return self.name.removeprefix(f"{WITHOUT} ") if " " in self.name else None


def base(groups: Groups, *, only_compat: bool, keep: Sequence[str] = ()) -> Side:
    """The side without: no Group at all, but for those to be kept.

    Args:
        groups: those of a run with all of them.
        only_compat: whether the Groups that let the repository run are kept.
        keep: ids of more to be kept.

    Raises:
        OptimizationConfigError: no such Group is to be kept.
    """
    unknown = [id_ for id_ in keep if id_ not in groups]
    if unknown:
        fault = Fault("--keep-group", ", ".join(unknown), f"a Group: {', '.join(groups)}")
        raise OptimizationConfigError(fault)
    kept = {id_ for id_, group in groups.items() if only_compat and group["compatibility"]}
    return Side(WITHOUT, tuple(id_ for id_ in groups if id_ not in kept | set(keep)))


def ablated(groups: Groups, without: Side) -> list[Side]:
    """A side for each Group that was applied and is not on the side without: all but that one."""
    applied = [id_ for id_ in applied_in(groups) if id_ in without.disabled]
    return [Side(f"{WITHOUT} {id_}", (id_,)) for id_ in applied]


def applied_in(groups: Groups) -> tuple[str, ...]:
    """The ids of the Groups that were applied."""
    return tuple(id_ for id_, group in groups.items() if group["state"] == "applied")
