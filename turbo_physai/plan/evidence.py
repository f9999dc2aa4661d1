"""Completes a plan with evidence: from source, for one Group at a time, before its first change."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Final

import attrs

from turbo_physai.config import Compatibility, Trust
from turbo_physai.declarations import Replacement
from turbo_physai.declarations.names import ObjectPath
from turbo_physai.evidence import Check, compatibility, examine, surroundings
from turbo_physai.plan.prepared import PreparedGroup

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


@attrs.frozen
class Evidence:
    """What was found out for one Group, and for the config as a whole."""

    config: list[Check]
    group: list[Check]


def gather(
    group: PreparedGroup,
    stated: Compatibility,
    known: ModuleSpec | None = None,
    members: Sequence[Replacement] | None = None,
) -> Evidence:
    """The checks of a Group, of all its members or, when a module runs again, of `members`.

    Args:
        stated: what the config was made for.
        known: the spec of the module that is about to run.

    Nothing is imported but the Group's own `compatibility_check`, so no lock may be held.
    """
    first = members is None
    declared = [m for m in group.declared.members if isinstance(m, Replacement)]
    trust = group.entry.trust or Trust()
    checks = [
        check
        for member in (declared if members is None else members)
        for check in examine.member(member, trust, known)
    ]
    if not first:
        return Evidence([], checks)
    folders = _folders(declared, known)
    folder = folders[0] if folders else None
    if group.declared.compatibility_check is not None:
        checks.append(_ask(group, folder))
    # A package that was installed is not the model: a work tree around it, if any, is another's.
    # A Group that only changes imports has no place.
    models = [each for each in folders if not _INSTALLED & set(each.parts)]
    if not declared or (folders and not models):
        return Evidence([], checks)
    return Evidence(list(surroundings.repository(stated, models[0] if models else None)), checks)


def _folders(members: Sequence[Replacement], known: ModuleSpec | None) -> list[Path]:
    """Where the targets lie whose files are known."""
    files = (examine.read(ObjectPath.parse(member.target), known).file for member in members)
    return [Path(file).parent for file in files if file is not None and Path(file).is_file()]


def _ask(group: PreparedGroup, folder: Path | None) -> Check:
    path = group.declared.compatibility_check
    assert path is not None
    told = compatibility.context(group.id, group.options, folder)
    try:
        answer = pkgutil.resolve_name(path)(told)
    except Exception as error:
        reason = f"its compatibility_check {path} failed: {type(error).__name__}: {error}"
        return Check("compatibility", "fail", group.id, reason=reason)
    return compatibility.verdict(answer, group.id)
