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
        except Exception as error:
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
    off: str = "",
) -> PreparedExecution:
    """Decides what can be decided before any target has been found.

    Args:
        force: ids of Groups whose overridable failures are let through.
        disable: ids of Groups that are not to be applied.
        off: why no Group is to be applied at all; empty if they are.

    Raises:
        OptimizationConfigError: the config lists a Group that nobody declares; `force` or `disable`
            hold an id that is not in it, or the same one; a dependency is missing or circular.
    """
    _refuse_unknown(config.groups, registry)
    _refuse_wrong_ids(config.groups, force, disable)
    groups = {
        entry.id: PreparedGroup(
            registry[entry.id],
            entry,
            forced=entry.id in force,
            unwanted=off or _unwanted(entry, disable),
        )
        for entry in in_order(config.groups, registry)
    }
    stated = config.compatibility
    prepared = PreparedExecution(snapshot(stated.dependencies or ()), groups)
    prepared.decide(groups)
    prepared.add(list(surroundings.packages_and_backend(stated)))
    prepared.conflicts = _conflicts(groups.values())
    for conflict in prepared.conflicts:
        prepared.add_to(groups[conflict.blocked], [conflict.check])
    return prepared


def _unwanted(entry: GroupEntry, disable: Sequence[str]) -> str:
    if not entry.is_enabled:
        return "not enabled in the config"
    return "disabled by the caller" if entry.id in disable else ""


def _conflicts(groups: Iterable[PreparedGroup]) -> tuple[Conflict, ...]:
    holders: dict[str, str] = {}
    replaced: dict[str, str] = {}  # modules, which may not lie inside one another either
    conflicts = []
    for group in groups:
        if not group.is_possible:
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
        conflicts += clashes
        if not clashes:
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
