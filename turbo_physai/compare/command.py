"""What ``turbo-physai compare`` does with its options."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import attrs

from turbo_physai.compare.chart import require_matplotlib, write_png
from turbo_physai.compare.compare import Plan, compare
from turbo_physai.compare.text import as_markdown, as_text
from turbo_physai.errors import Fault, OptimizationConfigError, TurboPhysAIError
from turbo_physai.launch.checks import CONFIG_ERROR, require
from turbo_physai.launch.command import export_valid
from turbo_physai.launch.options import Options
from turbo_physai.launch.runtime import Runtime
from turbo_physai.process import settings

T = TypeVar("T")


@attrs.frozen
class Output:
    """How a comparison is written: as text, unless one of the others is asked for."""

    json: bool = False
    markdown: bool = False
    png: Path | None = None


def run_comparison(
    plan: Plan, options: Options, runtime: Runtime, report_dir: Path | None, output: Output
) -> None:
    """Compares, and prints the result. Exits with 2 if anything was wrong before the first run, and
    with 1 if a run failed.

    Args:
        plan: what to compare; its folder is set here.
        options: those of the launchers.
        runtime: variables and placement of both sides.
        report_dir: where the reports of all runs are kept; None for nowhere.
        output: how to write it.
    """
    steps: list[Callable[[], object]] = [lambda: _require_numbers(plan)]
    if output.png is not None:
        steps.append(require_matplotlib)
    require(*steps)
    prepare(options, runtime)
    with folder(report_dir) as path:
        comparison = or_exit(lambda: compare(attrs.evolve(plan, folder=path)))
        if output.json:
            print(json.dumps(comparison.to_dict(), indent=1))
        else:
            print(as_markdown(comparison) if output.markdown else as_text(comparison))
        if output.png is not None:
            png = output.png
            or_exit(lambda: write_png(comparison, png))


def prepare(options: Options, runtime: Runtime) -> None:
    """Sets the environment of the runs, as ``turbo-physai run`` does; exits with 2 if it is wrong.

    Where no config is named, the command activates its processes itself.
    """
    named = (options.model, options.optimization_config, settings.OPTIMIZATION_CONFIG.text())
    if any(named):
        require(lambda: _require_on(options), runtime.apply, lambda: export_valid(options))
        return
    require(lambda: _require_on(options), runtime.apply)
    for setting, ids in (
        (settings.FORCE_GROUPS, options.force_groups),
        (settings.DISABLE_GROUPS, options.disable_groups),
    ):
        os.environ[setting.variable] = ",".join((*setting.ids(), *ids))


@contextlib.contextmanager
def folder(report_dir: Path | None) -> Iterator[Path]:
    """The folder of the reports: the one that is named, which must be new or empty, else one that
    lasts as long as the runs."""
    if report_dir is None:
        with tempfile.TemporaryDirectory(prefix="turbo_physai-") as made:
            yield Path(made)
        return
    path = report_dir.absolute()
    require(lambda: _make_empty(path))
    yield path


def or_exit(step: Callable[[], T]) -> T:
    """What `step` returns; exits with 1 if it raises an error that is to be expected."""
    try:
        return step()
    except OptimizationConfigError as error:
        print(f"turbo_physai: {error}", file=sys.stderr)
        sys.exit(CONFIG_ERROR)
    except (TurboPhysAIError, OSError) as error:
        print(f"turbo_physai: {error}", file=sys.stderr)
        sys.exit(1)


def _require_numbers(plan: Plan) -> None:
    numbers = {"--steps": plan.steps, "--warmup": plan.warmup, "--runs": plan.runs}
    faults = [
        Fault(option, str(number), "a number of at least 1")
        for option, number in numbers.items()
        if number < 1
    ]
    if faults:
        raise OptimizationConfigError(*faults)


def _require_on(options: Options) -> None:
    if options.is_off:
        raise OptimizationConfigError(
            Fault(settings.DISABLE.variable, "on", "off: with it nothing is applied or measured")
        )


def _make_empty(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        is_empty = not any(path.iterdir())
    except OSError as error:
        found = f"{path}: {error.strerror}"
        raise OptimizationConfigError(Fault("--report-dir", found, "a folder")) from error
    if not is_empty:
        found = f"{path}, which is not empty"
        raise OptimizationConfigError(Fault("--report-dir", found, "a new or empty folder"))
