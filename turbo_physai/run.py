"""``python -m turbo_physai.run [OPTIONS] (SCRIPT | -m MODULE) [ARGS...]``

Only the command line lives here: this file runs as `__main__`, so state in it would exist twice.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from turbo_physai.api import apply
from turbo_physai.errors import TurboPhysAIError
from turbo_physai.launch.options import Options
from turbo_physai.launch.program import Program

_parsed: list[tuple[Options, Program]] = []

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


# Everything after the program's name belongs to the program.
@app.command(context_settings={"allow_interspersed_args": False})
def parse(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="PROGRAM", help="A script, or a module after -m, and its arguments."
        ),
    ],
    is_module: Annotated[
        bool, typer.Option("-m", help="Run a module, whose name and arguments follow.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Use the packaged config of this model.")
    ] = None,
    optimization_config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Use this OptimizationConfig.")
    ] = None,
    force_group: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Let the overridable failed checks of a Group through."),
    ] = None,
    disable_group: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Do not apply a Group.")
    ] = None,
    log_report: Annotated[
        bool, typer.Option("--log-report", help="Log the whole report once it is final.")
    ] = False,
    report_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Keep the report's journal in this folder.")
    ] = None,
) -> None:
    """Run a script or module as python itself does, with the slow parts of its model swapped for
    fast ones as they are imported."""
    options = Options(
        model=model,
        optimization_config=optimization_config,
        force_groups=tuple(force_group or ()),
        disable_groups=tuple(disable_group or ()),
        log_report=log_report,
        report_dir=report_dir,
    )
    _parsed.append((options, Program(program[0], tuple(program[1:]), is_module)))


def main() -> None:
    # The program must not run inside the command line's library, which has its own ideas about
    # exceptions; so that is left, by the SystemExit that it ends with, before the program starts.
    try:
        app(prog_name="python -m turbo_physai.run")
    except SystemExit:
        if not _parsed:
            raise
    options, program = _parsed.pop()
    try:
        program.require()
        os.environ.update(options.environment())
        apply(log_report=options.log_report)
    except TurboPhysAIError as error:
        print(f"turbo_physai: {error}", file=sys.stderr)
        sys.exit(2)
    program.run()


if __name__ == "__main__":
    main()
