"""Turns a recipe, a config without trust, into a config that trusts the code of one checkout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import yaml

from turbo_physai.config import OptimizationConfigCatalog, load
from turbo_physai.declarations import ObjectPath, Registry
from turbo_physai.errors import Fault, OptimizationConfigError
from turbo_physai.evidence import examine, hashes, surroundings, validated
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


class Generated(NamedTuple):
    """A config, and what `turbo_physai.evidence.validated` keeps beside it."""

    config: str
    sources: str


def generate(recipe: Path, checkout: Path, registry: Registry | None = None) -> str:
    """The text of the config that `generate_with_sources` makes."""
    return generate_with_sources(recipe, checkout, registry).config


def generate_with_sources(
    recipe: Path, checkout: Path, registry: Registry | None = None, *, state_commit: bool = False
) -> Generated:
    """The config that `recipe` becomes on the code in `checkout`, and the code that it trusts; the
    same for the same files.

    Args:
        recipe: an OptimizationConfig without trust. Where it states commits, the checkout has to be
            at one of them, and clean.
        checkout: the folder that the targets' modules are found in; none of them is imported.
        registry: Groups besides those of the recipe's optimization modules.
        state_commit: whether the config states the checkout's commit as the one that it was made
            for; the checkout has to be a clean git work tree.

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
    commit = _commit(checkout) if state_commit else None
    if commit is not None:
        stated = attrs.evolve(stated, commits=(commit,))
    if stated.commits is not None:
        stated = attrs.evolve(stated, allow_dirty=False)
    faults = [
        Fault(str(checkout), check.actual or check.reason, check.expected, check.name)
        for check in surroundings.repository(stated, checkout, Repositories())
        if check.outcome != "pass"
    ]
    document: dict[str, Any] = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    if commit is not None:
        document.setdefault("compatibility", {})["commits"] = [commit]
    definitions: dict[str, Definition] = {}
    sys.path.insert(0, str(checkout))
    try:
        groups = collect(config, registry)
        prepare(config, groups)
        for entry in document.get("optimization_groups", ()):
            targets = [m.targets[0] for m in groups[entry["id"]].members if m.targets]
            if targets:  # imports are let through for what they are called, not for their code
                trusted = _definitions(targets, checkout, faults)
                entry["trust"] = _trust(trusted)
                definitions |= trusted
    finally:
        sys.path.remove(str(checkout))
    if faults:
        raise OptimizationConfigError(*faults)
    head = f"# Made from {recipe.name} by `turbo-physai optimization generate`; edit that file.\n"
    text = head + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000)
    return Generated(text, validated.as_text(definitions))


def _commit(checkout: Path) -> str:
    found = Repositories().around(checkout)
    if found is None or found.commit is None:
        fault = Fault(str(checkout), "no commit", "a git work tree with one", "commit")
        raise OptimizationConfigError(fault)
    return found.commit


def _definitions(
    targets: list[ObjectPath], checkout: Path, faults: list[Fault]
) -> dict[str, Definition]:
    found: dict[str, Definition] = {}
    for target in targets:
        definition = examine.read(target).found
        if isinstance(definition, Definition):
            found[str(target)] = definition
        else:
            accepted = "a class or function defined in the checkout"
            faults.append(Fault(str(checkout), definition.reason, accepted, str(target)))
    return found


def _trust(found: dict[str, Definition]) -> dict[str, Any]:
    return {
        "source_hashes": {name: [hashes.source_hash(d.segments)] for name, d in found.items()},
        "ast_hashes": {name: [hashes.ast_hash(d.nodes)] for name, d in found.items()},
    }
