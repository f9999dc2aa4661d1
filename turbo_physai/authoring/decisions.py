"""What would become of each Group of a config, told from source alone."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turbo_physai.authoring.resolved import resolve
from turbo_physai.declarations import ObjectPath, Replacement
from turbo_physai.errors import Fault, OptimizationConfigError
from turbo_physai.evidence import examine, validated
from turbo_physai.evidence.check import HASHES
from turbo_physai.evidence.definitions import Definition
from turbo_physai.plan import PreparedExecution


@contextmanager
def searched(checkout: Path | None) -> Iterator[None]:
    """Lets modules be found in a checkout first.

    Raises:
        OptimizationConfigError: it is no folder.
    """
    if checkout is None:
        yield
        return
    if not checkout.is_dir():
        found = "nothing" if not checkout.exists() else "a file"
        raise OptimizationConfigError(Fault(str(checkout), found, "the folder of the model's code"))
    sys.path.insert(0, str(checkout))
    try:
        yield
    finally:
        sys.path.remove(str(checkout))


def decide(
    config: Path,
    checkout: Path | None = None,
    force: Iterable[str] = (),
    disable: Iterable[str] = (),
) -> PreparedExecution:
    """Decides as `turbo_physai.apply` would, and imports neither targets nor replacements.

    Args:
        config: the config.
        checkout: the folder that holds the model's code; None for what python finds.
        force, disable: ids of Groups, as for `turbo_physai.apply`.

    Raises:
        OptimizationConfigError: the config is wrong, or `checkout` is no folder.
    """
    with searched(checkout):
        prepared = resolve(config, force, disable).prepared
        for group in prepared.groups.values():
            if group.is_possible:
                prepared.take(group, group.examiner.gather())
    return prepared


def changes(prepared: PreparedExecution, checkout: Path | None = None) -> dict[str, str]:
    """By target whose hash has failed and whose validated source is kept: what has changed, as a
    unified diff."""
    found = {}
    with searched(checkout):
        for group in prepared.groups.values():
            for check in group.checks:
                if check.name in HASHES and check.outcome == "fail":
                    segments = validated.read(group.examiner.trust, check.subject)
                    source = examine.read(ObjectPath(check.subject))
                    if segments is not None and isinstance(source.found, Definition):
                        found[check.subject] = validated.diff(segments, source.found, source.place)
    return found


def between(config: Path, old: Path, new: Path) -> dict[str, str]:
    """By target of a config: what differs between two checkouts, as a unified diff, or which of
    them lacks it. Targets that are the same are left out."""
    prepared = resolve(config).prepared
    targets = [
        member.target
        for group in prepared.groups.values()
        for member in group.declared.members
        if isinstance(member, Replacement)
    ]
    before, after = _sources(old, targets), _sources(new, targets)
    found = {}
    for target in targets:
        one, other = before[target], after[target]
        if isinstance(one.found, Definition) and isinstance(other.found, Definition):
            diff = validated.diff(validated.pieces(one.found), other.found, other.place)
            if diff:
                found[str(target)] = diff
        else:
            reasons = [
                f"{folder}: {each.found.reason}"
                for folder, each in ((old, one), (new, other))
                if not isinstance(each.found, Definition)
            ]
            found[str(target)] = "; ".join(reasons)
    return found


def _sources(checkout: Path, targets: list[Any]) -> dict[Any, examine.Source]:
    with searched(checkout):
        return {target: examine.read(target) for target in targets}
