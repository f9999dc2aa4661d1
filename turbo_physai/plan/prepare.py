"""From a config and the declared Groups to a PreparedExecution, changing and importing nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from turbo_physai.config import GroupEntry, OptimizationConfig, Trust
from turbo_physai.declarations import Registry
from turbo_physai.declarations.names import ObjectPath, overlap
from turbo_physai.declarations.options import resolve
from turbo_physai.errors import Fault, OptimizationConfigError, did_you_mean
from turbo_physai.evidence import surroundings
from turbo_physai.evidence.gather import Examiner
from turbo_physai.evidence.repository import Repositories
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
            found = f"{name!r}, which fails: {type(error).__name__}: {error}{_searched(error)}"
            accepted = "an importable module with a tuple GROUPS of Groups"
            faults.append(Fault(str(config.path), found, accepted, f"optimization_modules[{i}]"))
    if faults:
        raise OptimizationConfigError(*faults)
    return known


def _searched(error: BaseException) -> str:
    """Where a module that was not found was looked for."""
    if not isinstance(error, ModuleNotFoundError):
        return ""
    folders = dict.fromkeys(folder or "the working directory" for folder in sys.path)
    return f" (looked in {', '.join(folders)})"


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
        OptimizationConfigError: the config lists a Group that nobody declares, or an option that
            its Group does not have or cannot take; `force` or `disable` hold an id that is not in
            it, or the same one; a dependency is missing or circular.
    """
    options, faults = _options(config.groups, registry)
    faults += _unknown_ids(config.groups, registry)
    faults += _unknown_targets(config.groups, registry)
    faults += _wrong_ids(config.groups, force, disable)
    if faults:
        raise OptimizationConfigError(*faults)
    repositories = Repositories()
    groups = {
        entry.id: PreparedGroup(
            registry[entry.id],
            entry,
            Examiner(
                registry[entry.id],
                entry.trust or Trust(),
                options[entry.id],
                config.compatibility,
                repositories,
            ),
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
        paths = [ObjectPath(path).dotted for m in group.declared.members for path in m.paths]
        modules = [m.module for m in group.declared.members if m.claims_module and m.module]
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


def _options(
    entries: Sequence[GroupEntry], registry: Registry
) -> tuple[dict[str, Any], list[Fault]]:
    """The options of each Group, enabled or not, as an instance of its schema."""
    resolved, faults = {}, []
    for entry in entries:
        if entry.id not in registry:
            continue
        resolved[entry.id], wrong = resolve(registry[entry.id].options, entry.options or {})
        for each in wrong:
            path = f"options.{each.key}" if each.key else "options"
            faults.append(entry.fault(path, each.found, each.accepted))
    return resolved, faults


def _unknown_ids(entries: Sequence[GroupEntry], registry: Registry) -> list[Fault]:
    accepted = f"a declared Group: {', '.join(registry.ids) or 'none is declared'}"
    return [
        entry.fault("id", repr(entry.id), accepted + did_you_mean(entry.id, registry.ids))
        for entry in entries
        if entry.id not in registry
    ]


def _unknown_targets(entries: Sequence[GroupEntry], registry: Registry) -> list[Fault]:
    """A hash of a target that the Group does not have would protect nothing, unnoticed."""
    faults = []
    for entry in entries:
        if entry.id not in registry or entry.trust is None:
            continue
        targets = [m.targets[0] for m in registry[entry.id].members if m.targets]
        accepted = f"a target of the Group: {', '.join(targets)}"
        faults += [
            entry.fault(f"trust.{kind}", repr(target), accepted)
            for kind, hashes in entry.trust.hashes.items()
            for target in hashes
            if target not in targets
        ]
    return faults


def _wrong_ids(
    entries: Sequence[GroupEntry], force: Sequence[str], disable: Sequence[str]
) -> list[Fault]:
    enabled = {entry.id: entry.is_enabled for entry in entries}
    listed = f"a Group of the config: {', '.join(enabled)}"
    faults = [
        Fault(where, repr(id_), listed + did_you_mean(id_, enabled))
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
    return faults
