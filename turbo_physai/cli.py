"""``turbo-physai``: the command line."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from turbo_physai.commands import inspect, optimization
from turbo_physai.commands.compare import compare
from turbo_physai.evidence.packages import version
from turbo_physai.launch import annotations as given
from turbo_physai.launch.checks import CONFIG_ERROR
from turbo_physai.launch.command import become
from turbo_physai.launch.options import Options
from turbo_physai.launch.runtime import Runtime
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
app.add_typer(optimization.app, name="optimization")
# As with `run`, everything after the command's name belongs to the command.
app.command(context_settings={"allow_interspersed_args": False})(compare)
app.command()(inspect.models)
app.command()(inspect.doctor)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"turbo_physai {version('turbo_physai')}")
        raise typer.Exit


@app.callback()
def _options(
    version_: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Faster Physical-AI training without touching the model's source."""


# Everything after the command's name belongs to the command.
@app.command(context_settings={"allow_interspersed_args": False})
def run(
    command: given.Command,
    model: given.Model = None,
    optimization_config: given.OptimizationConfigFile = None,
    runtime_config: given.RuntimeConfigFile = None,
    force_group: given.ForceGroups = None,
    disable_group: given.DisableGroups = None,
    log_report: given.LogReport = False,
    report_dir: given.ReportDir = None,
    run_id: given.RunId = None,
    strict: given.StrictMode = False,
    observe: given.Observe = False,
    verify: given.Verify = None,
    verify_every: given.VerifyEvery = None,
    verify_save: given.VerifySave = None,
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
        observe=observe,
        verify=verify,
        verify_every=verify_every,
        verify_save=verify_save,
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


@report.command()
def html(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder with the reports of the ranks.")
    ],
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="Write it here; a file that exists is replaced.")
    ] = Path("report.html"),
    run_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Show this run, not the newest.")
    ] = None,
) -> None:
    """Write a run, over all of its ranks, as one page of HTML that needs nothing else. If `compare`
    has left its result in DIR, that is shown too. The exit code is that of `show`."""
    from turbo_physai.report.html import as_html, comparison_in

    try:
        merged = merge(folder, run_id)
        output.write_text(as_html(merged, comparison_in(folder)), encoding="utf-8")
    except (NoReportsError, OSError) as error:
        print(f"turbo_physai: {error}", file=sys.stderr)
        sys.exit(CONFIG_ERROR)
    print(output)
    sys.exit(0 if merged.is_complete else 1)


def main() -> None:
    app(prog_name="turbo-physai")


if __name__ == "__main__":
    main()
