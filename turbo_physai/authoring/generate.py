"""Turns a recipe, a config without trust, into a config that trusts the code of one checkout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import attrs
import yaml

from turbo_physai.config import OptimizationConfigCatalog, load
from turbo_physai.declarations import ObjectPath, Registry
from turbo_physai.errors import Fault, OptimizationConfigError
from turbo_physai.evidence import examine, hashes, surroundings
from turbo_physai.evidence.definitions import Definition
from turbo_physai.evidence.repository import Repositories
from turbo_physai.plan.prepare import collect, prepare


class _Dumper(yaml.SafeDumper):
    def check_simple_key(self) -> bool:
        """Targets are long: PyYAML would put keys of over 128 characters on a line of their own."""
        return isinstance(self.event, yaml.ScalarEvent) or super().check_simple_key()

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Lists stand indented under their key."""
        return super().increase_indent(flow, False)


def generate(recipe: Path, checkout: Path, registry: Registry | None = None) -> str:
    """The text of the config that `recipe` becomes on the code in `checkout`; the same for the same
    files.

    Args:
        recipe: an OptimizationConfig without trust. Where it states commits, the checkout has to be
            at one of them, and clean.
        checkout: the folder that the targets' modules are found in; none of them is imported.
        registry: Groups besides those of the recipe's optimization modules.

    Raises:
        OptimizationConfigError: the recipe is wrong, the checkout is not what it states, or a
            target cannot be found in it.
    """
    own = load(recipe)
    config = OptimizationConfigCatalog.installed().resolve(own)
    if not checkout.is_dir():
        found = "nothing" if not checkout.exists() else "a file"
        raise OptimizationConfigError(Fault(str(checkout), found, "the folder of the model's code"))
    stated = own.compatibility
    if stated.commits is not None:
        stated = attrs.evolve(stated, allow_dirty=False)
    faults = [
        Fault(str(checkout), check.actual or check.reason, check.expected, check.name)
        for check in surroundings.repository(stated, checkout, Repositories())
        if check.outcome != "pass"
    ]
    document: dict[str, Any] = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    sys.path.insert(0, str(checkout))
    try:
        groups = collect(config, registry)
        prepare(config, groups)
        for entry in document.get("optimization_groups", ()):
            targets = [m.targets[0] for m in groups[entry["id"]].members if m.targets]
            if targets:  # imports are let through for what they are called, not for their code
                entry["trust"] = _trust(targets, checkout, faults)
    finally:
        sys.path.remove(str(checkout))
    if faults:
        raise OptimizationConfigError(*faults)
    head = f"# Made from {recipe.name} by `turbo-physai optimization generate`; edit that file.\n"
    return head + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000)


def _trust(targets: list[ObjectPath], checkout: Path, faults: list[Fault]) -> dict[str, Any]:
    by_source, by_tree = {}, {}
    for target in targets:
        source = examine.read(target)
        if not isinstance(source.found, Definition):
            accepted = "a class or function defined in the checkout"
            faults.append(Fault(str(checkout), source.found.reason, accepted, str(target)))
            continue
        by_source[str(target)] = [hashes.source_hash(source.found.segments)]
        by_tree[str(target)] = [hashes.ast_hash(source.found.nodes)]
    return {"source_hashes": by_source, "ast_hashes": by_tree}
