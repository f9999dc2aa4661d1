"""The order in which Groups bind: the config's, made topological by `depends_on`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turbo_physai.errors import Fault, OptimizationConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turbo_physai.config import GroupEntry
    from turbo_physai.declarations import Registry


def in_order(entries: Sequence[GroupEntry], registry: Registry) -> list[GroupEntry]:
    """`entries`, each after the Groups that it depends on, otherwise as they stand; those that
    change imports come before all others.

    Raises:
        OptimizationConfigError: a Group depends on one that the config does not list, Groups depend
            on one another in a circle, or one that changes imports depends on one that does not.
    """
    by_id = {entry.id: entry for entry in entries}
    ordered: dict[str, GroupEntry] = {}
    faults: list[Fault] = []

    def fault(entry: GroupEntry, found: str, accepted: str) -> None:
        at = entry.fault("id", found, accepted)
        faults.append(at._replace(key=f"depends_on of {entry.id}"))

    def visit(entry: GroupEntry, above: tuple[str, ...]) -> None:
        declared = registry[entry.id]
        for needed in declared.depends_on:
            if needed not in by_id:
                fault(entry, repr(needed), f"a Group of this config: {', '.join(by_id)}")
            elif needed in above:
                circle = (*above[above.index(needed) :], needed)
                fault(entry, f"a circle: {' -> '.join(circle)}", "dependencies without a circle")
            elif declared.changes_imports and not registry[needed].changes_imports:
                fault(entry, repr(needed), "Groups of import-compatibility declarations only")
            elif needed not in ordered:
                visit(by_id[needed], (*above, needed))
        ordered.setdefault(entry.id, entry)

    for entry in sorted(entries, key=lambda entry: not registry[entry.id].changes_imports):
        if entry.id not in ordered:
            visit(entry, (entry.id,))
    if faults:
        raise OptimizationConfigError(*faults)
    return list(ordered.values())
