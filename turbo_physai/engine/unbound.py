"""Why a Group is still pending when the process ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from turbo_physai.evidence import examine
from turbo_physai.evidence.definitions import Missing, Unknown

if TYPE_CHECKING:
    from turbo_physai.engine.modules import Modules
    from turbo_physai.engine.records import GroupRecord, Site


def why_unbound(group: GroupRecord, modules: Modules, why_late: Callable[[str], str]) -> str:
    """What its members still wait for.

    Args:
        why_late: why a module may have been imported without its targets being bound.
    """
    waiting = [member for member in group.members if not member.is_bound]
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    for member in waiting:
        if main is not None and main.name in member.declared.modules:
            return f"{main.name} ran as __main__, where it is not patched"
    notes = [member.note for member in waiting if member.note]
    reasons = (why for m in waiting for site in m.missing for why in _why(site, modules, why_late))
    return "; ".join(notes or reasons)


def _why(site: Site, modules: Modules, why_late: Callable[[str], str]) -> Iterator[str]:
    for path in site.paths:
        found: object = None if site.path is None else examine.read(site.path).found
        if isinstance(found, Unknown) and found.is_located:
            found = None
        if isinstance(found, (Missing, Unknown)):
            yield f"never imported: {path} ({found.reason})"
        elif modules.is_due(site):
            yield f"{path}: {why_late(site.module or path)}"
        else:
            yield f"never imported: {path}"
