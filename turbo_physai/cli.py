"""``turbo-physai``: the command line."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from turbo_physai.authoring.generate import generate as generate_config
from turbo_physai.authoring.options_table import as_tables
from turbo_physai.config import OptimizationConfigCatalog, load, select
from turbo_physai.errors import Fault, OptimizationConfigError
from turbo_physai.launch import annotations as given
from turbo_physai.launch.activation import program_folders
from turbo_physai.launch.checks import CONFIG_ERROR, require
from turbo_physai.launch.command import become
from turbo_physai.launch.options import Options
from turbo_physai.launch.runtime import Runtime
from turbo_physai.plan import collect, prepare
from turbo_physai.report.merge import NoReportsError, merge
from turbo_physai.report.show import as_markdown, as_text

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Faster Physical-AI training without touching the model's source.",
)
report = typer.Typer(no_args_is_help=True, help="Look at what a run has done.")
app.add_typer(report, name="report")
optimization = typer.Typer(
    no_args_is_help=True, help="Make OptimizationConfigs, and see their options."
)
app.add_typer(optimization, name="optimization")


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
    shared = Options(
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
    become(command, shared, runtime)


class Format(str, Enum):
    """How a report is written."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


@report.callback()
def _report() -> None:
    """Keeps `show` a name of its own as long as it is the only one."""


@report.command()
def show(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder with the reports of the ranks.")
    ],
    format_: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.TEXT,
    run_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Show this run, not the newest.")
    ] = None,
) -> None:
    """Show what a run did, over all of its ranks. The exit code is 1 if a Group that was to be
    applied is not, or not on every rank, or if a rank has left no report."""
    try:
        merged = merge(folder, run_id)
    except NoReportsError as error:
        print(f"turbo_physai: {error}", file=sys.stderr)
        sys.exit(CONFIG_ERROR)
    if format_ is Format.JSON:
        print(json.dumps(merged.to_dict(), indent=1))
    else:
        print(as_text(merged) if format_ is Format.TEXT else as_markdown(merged))
    sys.exit(0 if merged.is_complete else 1)


@optimization.command()
def generate(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A config without trust.")],
    checkout: Annotated[
        Path, typer.Option(metavar="DIR", help="The validated code: the folder on sys.path.")
    ],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it here, not to the terminal.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Make a config that trusts the code of a checkout, and no other, from a recipe. The modules
    that the recipe names are looked for in DIR, beside the recipe, in the working directory, and
    where python looks."""
    made: list[str] = []

    def make() -> None:
        _refuse_overwriting(output, recipe, force=force)
        with program_folders(str(recipe.absolute().parent)):
            made.append(generate_config(recipe.absolute(), checkout.absolute()))

    require(make)
    if output is None:
        print(made[0], end="")
    else:
        require(lambda: _write(output, made[0], force=force))


def _refuse_overwriting(output: Path | None, recipe: Path, *, force: bool) -> None:
    if output is None or not output.exists():
        return
    if recipe.exists() and output.samefile(recipe):
        fault = Fault("--output", f"{output}, the recipe itself", "another file")
    elif not force:
        fault = Fault("--output", f"{output}, which exists", "a new file, or --force to replace it")
    else:
        return
    raise OptimizationConfigError(fault)


def _write(output: Path, text: str, *, force: bool) -> None:
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        found = f"{output}: {error.strerror}"
        raise OptimizationConfigError(Fault("--output", found, "a file to write")) from error


@optimization.command()
def options(
    model: given.Model = None, optimization_config: given.OptimizationConfigFile = None
) -> None:
    """Show the options of each Group: type, default, value in a config, and what it is for."""

    def show() -> None:
        path = select(optimization_config, model)
        config = OptimizationConfigCatalog.installed().resolve(load(path))
        with program_folders(str(path.parent)):
            prepared = prepare(config, collect(config, None))
        print(as_tables(prepared.groups.values()))

    require(show)


def main() -> None:
    app(prog_name="turbo-physai")


if __name__ == "__main__":
    main()
