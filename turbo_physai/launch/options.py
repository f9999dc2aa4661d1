"""What both launchers can be told, and the environment that tells it to every process below.

The annotations describe the options on the command line; `Options` holds what was given.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Annotated, Final

import attrs
import typer

from turbo_physai import api
from turbo_physai.config import select
from turbo_physai.config.selection import CONFIG_VARIABLE
from turbo_physai.process import ranks

from turbo_physai.report.strict import STRICT_VARIABLE

BOOTSTRAP: Final = str(Path(__file__).parent / "bootstrap")

Model = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="Use the packaged config of a model.")
]
OptimizationConfigFile = Annotated[
    str | None,
    typer.Option("--optimization-config", metavar="FILE", help="Use this OptimizationConfig."),
]
RuntimeConfigFile = Annotated[
    str | None,
    typer.Option("--runtime-config", metavar="FILE", help="Apply this RuntimeConfig."),
]
ForceGroups = Annotated[
    list[str] | None,
    typer.Option(
        "--force-group", metavar="ID", help="Let the overridable failed checks of a Group through."
    ),
]
DisableGroups = Annotated[
    list[str] | None, typer.Option("--disable-group", metavar="ID", help="Do not apply a Group.")
]
LogReport = Annotated[
    bool, typer.Option("--log-report", help="Log the whole report once it is final.")
]
ReportDir = Annotated[
    str | None, typer.Option("--report-dir", metavar="DIR", help="Keep the reports in this folder.")
]
RunId = Annotated[
    str | None, typer.Option("--run-id", metavar="ID", help="Name this launch in its reports.")
]
StrictMode = Annotated[
    bool,
    typer.Option(
        "--strict", help="End with the exit code 3 if a Group that should be applied was not."
    ),
]
Off = Annotated[
    bool, typer.Option("--disable", help="Run the program as if turbo_physai was not there.")
]

SetVariables = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a variable.")
]
RankAffinity = Annotated[
    list[str] | None,
    typer.Option(
        "--set-rank-affinity", metavar="RANK=CPUS", help="Bind a local rank to CPUs: 0=0-7,16."
    ),
]
RankNuma = Annotated[
    list[str] | None,
    typer.Option("--set-rank-numa", metavar="RANK=NODE", help="Bind a local rank to a NUMA node."),
]
Numa = Annotated[
    bool | None,
    typer.Option(
        "--enable-numa/--disable-numa",
        help="Bind each local rank to the NUMA node of its GPU, whatever the RuntimeConfig says.",
    ),
]


@attrs.frozen
class Options:
    """The options that both launchers share; each has an environment variable of its own."""

    model: str | None = None
    optimization_config: str | None = None
    force_groups: tuple[str, ...] = ()
    disable_groups: tuple[str, ...] = ()
    log_report: bool = False
    report_dir: str | None = None
    run_id: str | None = None
    strict: bool = False
    off: bool = False

    @property
    def is_off(self) -> bool:
        """Whether the kill switch is on, by option or by its variable."""
        return self.off or os.environ.get(api.OFF_VARIABLE) == "1"

    def export(self, environment: MutableMapping[str, str]) -> None:
        """Adds the variables that activate a process with these options, paths made absolute.

        Raises:
            OptimizationConfigNotFoundError: the config that was asked for is not there.
        """
        if self.is_off:
            environment[api.OFF_VARIABLE] = "1"
            return
        environment[CONFIG_VARIABLE] = str(select(self.optimization_config, self.model))
        if self.report_dir is not None:
            environment["TURBO_PHYSAI_REPORT_DIR"] = str(Path(self.report_dir).absolute())
        if self.run_id is not None:
            environment[ranks.RUN_ID_VARIABLE] = self.run_id
        if self.log_report:
            environment[api.LOG_VARIABLE] = "1"
        if self.strict:
            environment[STRICT_VARIABLE] = "1"
        # Ids that an outer launcher has stated stay in force, as they do beside apply()'s own.
        for variable, ids in (
            (api.FORCE_VARIABLE, self.force_groups),
            (api.DISABLE_VARIABLE, self.disable_groups),
        ):
            if ids:
                environment[variable] = ",".join(filter(None, (environment.get(variable), *ids)))
        environment.setdefault(ranks.LAUNCH_VARIABLE, ranks.new_run_id())
        _reach_children(environment)


def _reach_children(environment: MutableMapping[str, str]) -> None:
    """Puts the bootstrap folder in front of PYTHONPATH, and leaves what the user has there alone:
    an empty entry, for one, means the working directory."""
    path = environment.get("PYTHONPATH")
    users = path.split(os.pathsep) if path else []
    entries = [BOOTSTRAP, *(entry for entry in users if entry != BOOTSTRAP)]
    environment["PYTHONPATH"] = os.pathsep.join(entries)
