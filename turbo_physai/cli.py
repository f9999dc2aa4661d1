"""``turbo-physai``: the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from turbo_physai.launch import options as given
from turbo_physai.launch.command import become
from turbo_physai.launch.runtime import Runtime

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Faster Physical-AI training without touching the model's source.",
)


# Everything after the command's name belongs to the command.
@app.command(context_settings={"allow_interspersed_args": False})
def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="Any command and its arguments.")
    ],
    model: given.Model = None,
    optimization_config: given.OptimizationConfigFile = None,
    runtime_config: given.RuntimeConfigFile = None,
    force_group: given.ForceGroups = None,
    disable_group: given.DisableGroups = None,
    log_report: given.LogReport = False,
    report_dir: given.ReportDir = None,
    run_id: given.RunId = None,
    strict: given.StrictMode = False,
    disable: given.Off = False,
    set_: given.SetVariables = None,
    set_rank_affinity: given.RankAffinity = None,
    set_rank_numa: given.RankNuma = None,
    numa: given.Numa = None,
) -> None:
    """Become a command, every Python process of which swaps the slow parts of its model for fast
    ones as they are imported."""
    options = given.Options(
        model=model,
        optimization_config=optimization_config,
        force_groups=tuple(force_group or ()),
        disable_groups=tuple(disable_group or ()),
        log_report=log_report,
        report_dir=report_dir,
        run_id=run_id,
        strict=strict,
        off=disable,
    )
    runtime = Runtime(
        config=runtime_config,
        model=model,
        numa=numa,
        variables=tuple(set_ or ()),
        rank_affinity=tuple(set_rank_affinity or ()),
        rank_numa=tuple(set_rank_numa or ()),
    )
    become(command, options, runtime)


@app.callback()
def main_() -> None:
    pass


def main() -> None:
    app(prog_name="turbo-physai")


if __name__ == "__main__":
    main()
