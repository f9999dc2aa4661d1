"""``turbo-physai models`` and ``doctor``: what is there before anything is started."""

from __future__ import annotations

import sys

from turbo_physai.authoring import decisions
from turbo_physai.authoring.doctor import Finding, chosen, findings
from turbo_physai.authoring.models import models as all_models
from turbo_physai.commands.output import AsJson, print_json, print_table
from turbo_physai.config import select
from turbo_physai.errors import TurboPhysAIError
from turbo_physai.launch import annotations as given
from turbo_physai.launch.activation import program_folders
from turbo_physai.plan import PreparedGroup


def models(as_json: AsJson = False) -> None:
    """List what --model takes: the configs of turbo_physai and of other installed packages. The
    exit code is 1 if one of them cannot be used."""
    found = all_models()
    if as_json:
        print_json([each._asdict() for each in found])
    else:
        rows = [
            (
                each.name,
                each.model,
                ", ".join(commit[:7] for commit in each.commits),
                len(each.groups) or "",
                each.origin,
                each.fault or each.path,
            )
            for each in found
        ]
        print_table(("name", "model", "made for", "Groups", "from", "config"), rows)
    sys.exit(any(each.fault for each in found))


def doctor(
    model: given.Model = None,
    optimization_config: given.OptimizationConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what a start here would find: Python, torch, GPU, compiler, kernels, start-up file,
    other import hooks, variables, the config that would be taken, and what `optimization check`
    says of its Groups. The exit code is 1 if anything is in the way."""
    found = list(findings())
    if model is None and optimization_config is None:
        found.append(chosen())
    groups: list[tuple[str, str, str]] = []
    error = ""
    try:
        config = select(optimization_config, model)
        with program_folders(str(config.parent)):
            prepared = decisions.decide(config)
        groups = [(id_, each.decision, _why(each)) for id_, each in prepared.groups.items()]
    except TurboPhysAIError as caught:
        error = str(caught)
    is_faulty = bool(error) or any(each.is_fault for each in found)
    is_blocked = any(decision == "block" for _, decision, _ in groups)
    if as_json:
        print_json(
            {
                "findings": [each._asdict() for each in found],
                "groups": [dict(zip(("id", "decision", "reason"), g, strict=True)) for g in groups],
                "error": error,
            }
        )
    else:
        rows = [
            (each.subject, f"! {each.found}" if each.is_fault else each.found) for each in found
        ]
        print_table(("looked at", "found"), rows)
        print()
        if groups:
            print_table(("Group", "decision", "reason"), groups)
        if error:
            print(error)
    sys.exit(is_faulty or is_blocked)


def _marked(finding: Finding) -> str:
    return f"! {finding.found}" if finding.is_fault else finding.found


def _why(group: PreparedGroup) -> str:
    """The reason of a decision; of what only an import can tell, each kind of it once."""
    if group.decision != "unknown":
        return group.reason
    open_ = [check.reason for check in group.checks if check.leaves_open and check.name == "target"]
    return "; ".join(dict.fromkeys(open_)) or group.reason
