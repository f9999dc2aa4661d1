"""The command line of ``python -m turbo_physai.run``.

It is read in every training that is started so, where typer would take longer to import than the
engine does.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from turbo_physai.errors import did_you_mean
from turbo_physai.launch.options import SHARED, Options
from turbo_physai.launch.program import Program

_USAGE: Final = "python -m turbo_physai.run [OPTIONS] (SCRIPT | -m MODULE) [ARGS...]"
_DESCRIPTION: Final = (
    "Run a script or module as python itself does, with the slow parts of its model swapped for "
    "fast ones as they are imported. SCRIPT may be - for standard input."
)


def parse(arguments: Sequence[str]) -> tuple[Options, str | None, Program]:
    """The options, the path of the RuntimeConfig if one is named, and the program.

    Raises:
        SystemExit: help was asked for (0), or the arguments are wrong (2).
    """
    parser = _parser()
    options, program = _split(arguments)
    given, unknown = parser.parse_known_args(options)
    if unknown:
        known = [each.option.split()[0] for each in SHARED]
        parser.error(f"no such option: {unknown[0]}{did_you_mean(unknown[0], known)}")
    if not program:
        parser.error("no program was named; accepted: a script, or a module after -m")
    shared = Options(
        model=given.model,
        optimization_config=given.optimization_config,
        force_groups=tuple(given.force_group),
        disable_groups=tuple(given.disable_group),
        log_report=given.log_report,
        report_dir=given.report_dir,
        run_id=given.run_id,
        strict=given.strict,
        observe=given.observe,
        verify=given.verify,
        verify_every=given.verify_every,
        verify_save=given.verify_save,
        off=given.disable,
    )
    return shared, given.runtime_config, Program(program[0], tuple(program[1:]), given.is_module)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m turbo_physai.run",
        usage=_USAGE,
        description=_DESCRIPTION,
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-m",
        action="store_true",
        dest="is_module",
        help="Run a module, whose name and arguments follow.",
    )
    for each in SHARED:
        name, _, metavar = each.option.partition(" ")
        if each.kind == "flag":
            parser.add_argument(name, action="store_true", help=each.help)
        elif each.kind == "ids":
            parser.add_argument(name, action="append", default=[], metavar=metavar, help=each.help)
        else:
            parser.add_argument(name, metavar=metavar, help=each.help)
    parser.add_argument("--help", action="help", help="Show this message and exit.")
    return parser


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options, and the program with its arguments, which may look like options of ours.

    argparse cannot be asked for this: what it does at the end of the options has changed from one
    version of Python to the next.
    """
    with_value = {each.option.split()[0] for each in SHARED if each.kind != "flag"}
    options: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        option = rest.pop(0)
        if option == "--":
            break
        if option in with_value and rest:
            option = f"{option}={rest.pop(0)}"  # as one, the value may begin with a dash
        options.append(option)
    return options, rest
