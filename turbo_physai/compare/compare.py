"""The comparison: runs in turns, so that a machine that grows slower or faster with time does so on
both sides."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from turbo_physai.compare.figures import Comparison, Figures, between, quantile, within
from turbo_physai.compare.runs import Run, RunError, run
from turbo_physai.compare.sides import WITH, Side, ablated, applied_in, base
from turbo_physai.measure import Request
from turbo_physai.process import ranks

FILE: Final = "comparison.json"


@attrs.frozen
class Plan:
    """What to compare.

    Attributes:
        command: the command.
        folder: where the runs leave their reports and the comparison its own file.
        steps: measured steps a run.
        warmup: steps before them.
        runs: runs a side.
        ablate: whether to leave out one Group at a time as well.
        only_compat: whether the side without keeps the Groups that let the repository run.
        keep: ids of more Groups that it keeps.
        loss: the variable that holds the loss; empty for what `Tensor.backward` is called on.
    """

    command: tuple[str, ...]
    folder: Path
    steps: int
    warmup: int
    runs: int
    ablate: bool = False
    only_compat: bool = False
    keep: tuple[str, ...] = ()
    loss: str = ""


def compare(plan: Plan) -> Comparison:
    """Runs all sides, one run of each a round. The first run is with all Groups, and tells which
    there are.

    Raises:
        RunError: a run failed, or nothing could be measured or compared.
        OptimizationConfigError: a Group to be kept does not exist.
    """
    run_id = ranks.new_run_id()
    first = _run(plan, Side(WITH), 1, run_id)
    without = base(first.groups, only_compat=plan.only_compat, keep=plan.keep)
    sides = [Side(WITH), without, *(ablated(first.groups, without) if plan.ablate else ())]
    _require_difference(first, without)
    runs: dict[str, list[Run]] = {side.name: [] for side in sides}
    runs[WITH].append(first)
    for number in range(1, plan.runs + 1):
        for side in sides:
            if (side.name, number) != (WITH, 1):
                runs[side.name].append(_run_or_explain(plan, side, number, run_id, first))
    comparison = Comparison(
        run_id,
        plan.command,
        plan.warmup,
        plan.steps,
        plan.runs,
        len(first.ranks),
        first.ranks[0]["device_name"] or first.ranks[0]["device"],
        tuple(_figures(side, runs[side.name]) for side in sides),
        between(runs),
        within(runs),
        tuple(warning for each in runs.values() for one in each for warning in one.warnings),
    )
    text = json.dumps(comparison.to_dict(), indent=1)
    (plan.folder / FILE).write_text(f"{text}\n", encoding="utf-8")
    return comparison


def _figures(side: Side, runs: Sequence[Run]) -> Figures:
    return Figures.of(attrs.evolve(side, applied=applied_in(runs[0].groups)), runs)


def _require_difference(first: Run, without: Side) -> None:
    """A run that applies no Group which the other side leaves out would be compared with itself."""
    if set(applied_in(first.groups)) & set(without.disabled):
        return
    reasons = [
        f"\n    {id_}: {group['state']}{group['reason'] and ': ' + group['reason']}"
        for id_, group in first.groups.items()
    ]
    raise RunError(f"no Group to compare was applied in the run with them:{''.join(reasons)}")


def _run_or_explain(plan: Plan, side: Side, number: int, run_id: str, first: Run) -> Run:
    try:
        return _run(plan, side, number, run_id)
    except RunError as error:
        compat = [id_ for id_ in side.disabled if first.groups[id_]["compatibility"]]
        if not compat:
            raise
        raise RunError(
            f"{error}\nThis side runs without {', '.join(compat)}, which may be what lets the "
            "repository run at all; --only-compat keeps such Groups"
        ) from error


def _run(plan: Plan, side: Side, number: int, run_id: str) -> Run:
    label = f"{side.name}-{number}".replace(" ", "-")
    name = f"{side.name}, run {number} of {plan.runs}"
    request = Request(str(plan.folder / label), plan.warmup, plan.steps, plan.loss)
    done = run(plan.command, request, side.disabled, f"{run_id}-{label}", name)
    median = quantile(done.seconds, 0.5)
    print(f"turbo_physai: {name}: {median:.4g} s a step", file=sys.stderr, flush=True)
    return done
