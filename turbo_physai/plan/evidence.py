"""Completes a plan with evidence: from source, for one Group at a time, before its first change."""

from __future__ import annotations

import pkgutil
from collections.abc import Collection, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Final

from turbo_physai.config import Compatibility, Trust
from turbo_physai.declarations import Replacement
from turbo_physai.declarations.names import ObjectPath
from turbo_physai.evidence import Check, compatibility, examine, surroundings
from turbo_physai.plan.prepared import Evidence, PreparedGroup

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


def gather(
    group: PreparedGroup, stated: Compatibility, known: ModuleSpec | None = None
) -> Evidence:
    """The checks of a Group, before anything of it is changed.

    Args:
        stated: what the config was made for.
        known: the spec of the module that is about to run.

    Nothing is imported but the Group's own `compatibility_check`, so no lock may be held.
    """
    declared = group.replacements
    trust = group.entry.trust or Trust()
    checks = [check for m in declared for check in examine.member(m, trust, known)]
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


def regather(group: PreparedGroup, known: ModuleSpec) -> Evidence:
    """The checks of those members of a Group whose module is about to run, or to run again."""
    trust = group.entry.trust or Trust()
    members = [m for m in group.replacements if known.name in m.modules]
    return Evidence([], [check for m in members for check in examine.member(m, trust, known)])


def confirm(group: PreparedGroup, member: Replacement, paths: Collection[str]) -> Evidence:
    """The checks of a member that are about `paths`, objects that are there now: what the source
    left open is answered."""
    checks = examine.confirmed(member, group.entry.trust or Trust())
    return Evidence([], [check for check in checks if check.subject in paths])


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
