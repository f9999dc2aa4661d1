"""Completes a plan with evidence: from source, for one Group at a time, before its first change."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import attrs

from turbo_physai.config import Compatibility, Trust
from turbo_physai.declarations import Replacement
from turbo_physai.declarations.names import ObjectPath
from turbo_physai.evidence import Check, compatibility, examine, surroundings
from turbo_physai.plan.prepared import PreparedGroup


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
    folder = _folder(declared, known)
    if group.declared.compatibility_check is not None:
        checks.append(_ask(group, folder))
    return Evidence(list(surroundings.repository(stated, folder)), checks)


def _folder(members: Sequence[Replacement], known: ModuleSpec | None) -> Path | None:
    """Where the first target lies whose file is known."""
    for member in members:
        file = examine.read(ObjectPath.parse(member.target), known).file
        if file is not None and Path(file).is_file():
            return Path(file).parent
    return None


def _ask(group: PreparedGroup, folder: Path | None) -> Check:
    path = group.declared.compatibility_check
    assert path is not None
    told = compatibility.context(group.id, group.entry.options or {}, folder)
    try:
        answer = pkgutil.resolve_name(path)(told)
    except Exception as error:
        reason = f"its compatibility_check {path} failed: {type(error).__name__}: {error}"
        return Check("compatibility", "fail", group.id, reason=reason)
    return compatibility.verdict(answer, group.id)
