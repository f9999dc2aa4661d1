"""From a config and the declared Groups to a PreparedExecution, changing and importing nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module

import attrs

from turbo_physai.config import GroupEntry, OptimizationConfig
from turbo_physai.declarations import Registry, ReplaceImport, Replacement
from turbo_physai.declarations.names import ObjectPath, overlap
from turbo_physai.errors import Fault, OptimizationConfigError
from turbo_physai.evidence import surroundings
from turbo_physai.plan.environment import snapshot
from turbo_physai.plan.order import in_order
from turbo_physai.plan.prepared import Conflict, PreparedExecution, PreparedGroup


def collect(config: OptimizationConfig, registry: Registry | None) -> Registry:
    """The Groups of `registry` and of the config's optimization modules in one Registry.

    Raises:
        OptimizationConfigError: a module cannot be imported or declares no `GROUPS`.
    """
    known = Registry(registry or ())
    faults = []
    for i, name in enumerate(config.optimization_modules):
        try:
            for declared in import_module(name).GROUPS:
                known.add(declared)
        except (Exception, SystemExit) as error:
            found = f"{name!r}, which fails: {type(error).__name__}: {error}"
            accepted = "an importable module with a tuple GROUPS of Groups"
            faults.append(Fault(str(config.path), found, accepted, f"optimization_modules[{i}]"))
    if faults:
        raise OptimizationConfigError(*faults)
    return known


def prepare(
    config: OptimizationConfig,
    registry: Registry,
    force: Sequence[str] = (),
    disable: Sequence[str] = (),
) -> PreparedExecution:
    """Decides what can be decided before any target has been found.

    Raises:
        OptimizationConfigError: the config lists a Group that nobody declares; `force` or `disable`
            hold an id that is not in it, or the same one; a dependency is missing or circular.
    """
    _refuse_unknown(config.groups, registry)
    _refuse_wrong_ids(config.groups, force, disable)
    groups = {
        entry.id: PreparedGroup(registry[entry.id], entry, forced=entry.id in force)
        for entry in in_order(config.groups, registry)
    }
    for each in groups.values():
        _decide(each, groups, disable)
    stated = config.compatibility
    environment = snapshot(stated.dependencies or ())
    prepared = PreparedExecution(environment, groups, _conflicts(groups.values()))
    prepared.add(list(surroundings.packages_and_backend(stated)))
    return prepared


def _decide(group: PreparedGroup, groups: dict[str, PreparedGroup], disable: Sequence[str]) -> None:
    # Dependencies come first in `groups`, so that what is said of them here is settled.
    skipped = [id_ for id_ in group.declared.depends_on if groups[id_].decision == "skip"]
    if not group.entry.is_enabled:
        group.decision, group.reason = "skip", "not enabled in the config"
    elif group.id in disable:
        group.decision, group.reason = "skip", "disabled by the caller"
    elif skipped:
        group.decision = "skip"
        group.reason = f"depends on {', '.join(skipped)}, which is skipped"


def _conflicts(groups: Iterable[PreparedGroup]) -> tuple[Conflict, ...]:
    holders: dict[str, str] = {}
    replaced: dict[str, str] = {}  # modules, which may not lie inside one another either
    conflicts = []
    for group in groups:
        if group.decision != "apply":
            continue
        paths = [ObjectPath.parse(path).dotted for m in group.declared.members for path in m.paths]
        modules = [m.target for m in group.declared.members if isinstance(m, ReplaceImport)]
        clashes = [Conflict(path, holders[path], group.id) for path in paths if path in holders]
        clashes += [
            Conflict(f"{module}, with {other}", holder, group.id)
            for module in modules
            for other, holder in replaced.items()
            if overlap(module, other) and module != other
        ]
        if clashes:
            group.block("; ".join(map(str, clashes)))
            conflicts += clashes
        else:
            holders.update(dict.fromkeys(paths, group.id))
            replaced.update(dict.fromkeys(modules, group.id))
    return tuple(conflicts)


def _refuse_unknown(entries: Sequence[GroupEntry], registry: Registry) -> None:
    accepted = f"a declared Group: {', '.join(registry.ids) or 'none is declared'}"
    faults = [
        Fault(
            entry.place[0], repr(entry.id), accepted, f"optimization_groups[{i}].id", entry.place[1]
        )
        for i, entry in enumerate(entries)
        if entry.id not in registry
    ]
    for i, entry in enumerate(entries):
        faults += _unknown_targets(entry, f"optimization_groups[{i}].trust", registry)
    if faults:
        raise OptimizationConfigError(*faults)


def _unknown_targets(entry: GroupEntry, key: str, registry: Registry) -> list[Fault]:
    """A hash of a target that the Group does not have would protect nothing, unnoticed."""
    if entry.id not in registry or entry.trust is None:
        return []
    targets = [m.target for m in registry[entry.id].members if isinstance(m, Replacement)]
    stated = attrs.asdict(entry.trust)
    return [
        Fault(
            entry.place[0],
            repr(target),
            f"a target of the Group: {', '.join(targets)}",
            f"{key}.{kind}",
            entry.place[1],
        )
        for kind, hashes in stated.items()
        for target in hashes
        if target not in targets
    ]


def _refuse_wrong_ids(
    entries: Sequence[GroupEntry], force: Sequence[str], disable: Sequence[str]
) -> None:
    enabled = {entry.id: entry.is_enabled for entry in entries}
    listed = f"a Group of the config: {', '.join(enabled)}"
    faults = [
        Fault(where, repr(id_), listed)
        for where, ids in (("force_groups", force), ("disable_groups", disable))
        for id_ in ids
        if id_ not in enabled
    ]
    for id_ in force:
        if id_ in disable:
            found = f"{id_!r}, which is also in disable_groups"
            faults.append(Fault("force_groups", found, "an id in one of the two"))
        elif enabled.get(id_) is False:
            found = f"{id_!r}, which is not enabled"
            faults.append(Fault("force_groups", found, "an enabled Group"))
    if faults:
        raise OptimizationConfigError(*faults)
