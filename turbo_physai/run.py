"""``python -m turbo_physai.run [OPTIONS] (SCRIPT | -m MODULE) [ARGS...]``

Only the command line lives here: this file runs as `__main__`, so state in it would exist twice.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from turbo_physai.launch import options as given
from turbo_physai.launch.activation import activate_for
from turbo_physai.launch.checks import require
from turbo_physai.launch.program import Program
from turbo_physai.launch.runtime import Runtime

_parsed: list[tuple[given.Options, Runtime, Program]] = []

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


# Everything after the program's name belongs to the program.
@app.command(context_settings={"allow_interspersed_args": False})
def parse(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="PROGRAM",
            help="A script (- for standard input) or a module after -m, and its arguments.",
        ),
    ],
    is_module: Annotated[
        bool, typer.Option("-m", help="Run a module, whose name and arguments follow.")
    ] = False,
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
) -> None:
    """Run a script or module as python itself does, with the slow parts of its model swapped for
    fast ones as they are imported."""
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
    # Only a RuntimeConfig that is named: a program that has begun is not python's plain self any
    # more once its environment was changed on the strength of a model's name.
    runtime = Runtime(config=runtime_config)
    _parsed.append((options, runtime, Program(program[0], tuple(program[1:]), is_module)))


def main() -> None:
    # The program must not run inside the command line's library, which has its own ideas about
    # exceptions; so that is left, by the SystemExit that it ends with, before the program starts.
    hook = sys.excepthook
    try:
        app(prog_name="python -m turbo_physai.run")
    except SystemExit:
        if not _parsed:
            raise
    sys.excepthook = hook
    options, runtime, program = _parsed.pop()
    if options.is_off:
        options.export(os.environ)
    else:
        require(program.require, runtime.apply, lambda: options.export(os.environ))
    program.prepare()
    if not options.is_off:
        require(lambda: activate_for(program))
    program.run()


if __name__ == "__main__":
    main()
