"""``turbo-physai compare``: a training command with and without Groups."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turbo_physai.launch import annotations as given
from turbo_physai.launch.options import Options
from turbo_physai.launch.runtime import Runtime


def compare(
    command: given.Command,
    steps: Annotated[int, typer.Option(metavar="N", help="Measure N optimizer steps a run.")] = 20,
    warmup: Annotated[int, typer.Option(metavar="W", help="Leave out the W before them.")] = 3,
    runs: Annotated[int, typer.Option(metavar="R", help="Make R runs a side, in turns.")] = 3,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Also leave out one Group at a time.")
    ] = False,
    only_compat: Annotated[
        bool,
        typer.Option(
            "--only-compat", help="Keep the Groups that let a repository run on each side."
        ),
    ] = False,
    keep_group: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Keep this Group on each side.")
    ] = None,
    loss: Annotated[
        str, typer.Option(metavar="NAME", help="The loop's variable that holds the loss.")
    ] = "",
    model: given.Model = None,
    optimization_config: given.OptimizationConfigFile = None,
    runtime_config: given.RuntimeConfigFile = None,
    force_group: given.ForceGroups = None,
    disable_group: given.DisableGroups = None,
    report_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the reports of all runs in this new folder."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a chart too; needs matplotlib.")
    ] = None,
) -> None:
    """Run a training command with and without Groups, in turns, and compare step time, memory and
    losses. Each run ends after its last step."""
    from turbo_physai.compare.command import Output, run_comparison
    from turbo_physai.compare.compare import Plan

    run_comparison(
        Plan(
            tuple(command),
            Path(),
            steps,
            warmup,
            runs,
            ablate,
            only_compat,
            tuple(keep_group or ()),
            loss,
        ),
        Options(
            model=model,
            optimization_config=optimization_config,
            force_groups=tuple(force_group or ()),
            disable_groups=tuple(disable_group or ()),
        ),
        Runtime(config=runtime_config, model=model),
        report_dir,
        Output(as_json, as_markdown, png),
    )
