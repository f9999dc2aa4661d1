"""What both launchers can be told, and the environment that tells it to every process below.

The annotations describe the options on the command line; `Options` holds what was given.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
import typer

from turbo_physai.config import select
from turbo_physai.process import ranks, settings
from turbo_physai.process.settings import Setting
from turbo_physai.process.variables import absolute, make_paths_absolute

BOOTSTRAP: Final = str(Path(__file__).parent / "bootstrap")


def _option(setting: Setting) -> Any:
    name, _, metavar = setting.option.partition(" ")
    return typer.Option(name, metavar=metavar or None, help=setting.help)


Model = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="Use the packaged config of a model.")
]
OptimizationConfigFile = Annotated[str | None, _option(settings.OPTIMIZATION_CONFIG)]
RuntimeConfigFile = Annotated[str | None, _option(settings.RUNTIME_CONFIG)]
ForceGroups = Annotated[list[str] | None, _option(settings.FORCE_GROUPS)]
DisableGroups = Annotated[list[str] | None, _option(settings.DISABLE_GROUPS)]
LogReport = Annotated[bool, _option(settings.LOG_REPORT)]
ReportDir = Annotated[str | None, _option(settings.REPORT_DIR)]
RunId = Annotated[str | None, _option(settings.RUN_ID)]
StrictMode = Annotated[bool, _option(settings.STRICT)]
Off = Annotated[bool, _option(settings.DISABLE)]

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
        return self.off or settings.DISABLE.is_on()

    def export(self, environment: MutableMapping[str, str], *, from_folder: bool = True) -> None:
        """Adds the variables that activate a process with these options, paths made absolute.

        Args:
            environment: what is changed.
            from_folder: whether the working directory may hold the config, if none is named.

        Raises:
            OptimizationConfigNotFoundError: the config that was asked for is not there.
        """
        if self.is_off:
            environment[settings.DISABLE.variable] = "1"
            return
        config = select(self.optimization_config, self.model, from_folder=from_folder)
        stated: dict[Setting, str | None] = {
            settings.OPTIMIZATION_CONFIG: str(config),
            settings.REPORT_DIR: self.report_dir and absolute(self.report_dir),
            settings.RUN_ID: self.run_id,
            settings.LOG_REPORT: "1" if self.log_report else None,
            settings.STRICT: "1" if self.strict else None,
            # Ids that an outer launcher has stated stay in force, as they do beside apply()'s own.
            settings.FORCE_GROUPS: _added(settings.FORCE_GROUPS, environment, self.force_groups),
            settings.DISABLE_GROUPS: _added(
                settings.DISABLE_GROUPS, environment, self.disable_groups
            ),
        }
        for setting, value in stated.items():
            if value is not None:
                environment[setting.variable] = value
        make_paths_absolute(environment)
        environment.setdefault(settings.LAUNCH_ID.variable, ranks.new_run_id())
        _reach_children(environment)


def _added(
    setting: Setting, environment: MutableMapping[str, str], ids: tuple[str, ...]
) -> str | None:
    return ",".join((*setting.ids(environment), *ids)) if ids else None


def _reach_children(environment: MutableMapping[str, str]) -> None:
    """Puts the bootstrap folder in front of PYTHONPATH, and leaves what the user has there alone:
    an empty entry, for one, means the working directory."""
    path = environment.get("PYTHONPATH")
    users = path.split(os.pathsep) if path else []
    entries = [BOOTSTRAP, *(entry for entry in users if entry != BOOTSTRAP)]
    environment["PYTHONPATH"] = os.pathsep.join(entries)
