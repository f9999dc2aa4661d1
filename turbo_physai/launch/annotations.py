"""The options of ``turbo-physai run``, as typer reads them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from turbo_physai.launch.options import MODEL
from turbo_physai.process import settings
from turbo_physai.process.settings import Setting


def _option(setting: Setting) -> Any:
    name, _, metavar = setting.option.partition(" ")
    return typer.Option(name, metavar=metavar or None, help=setting.help)


Command = Annotated[
    list[str], typer.Argument(metavar="COMMAND", help="Any command and its arguments.")
]
Model = Annotated[str | None, _option(MODEL)]
OptimizationConfigFile = Annotated[str | None, _option(settings.OPTIMIZATION_CONFIG)]
RuntimeConfigFile = Annotated[str | None, _option(settings.RUNTIME_CONFIG)]
ForceGroups = Annotated[list[str] | None, _option(settings.FORCE_GROUPS)]
DisableGroups = Annotated[list[str] | None, _option(settings.DISABLE_GROUPS)]
LogReport = Annotated[bool, _option(settings.LOG_REPORT)]
ReportDir = Annotated[str | None, _option(settings.REPORT_DIR)]
RunId = Annotated[str | None, _option(settings.RUN_ID)]
StrictMode = Annotated[bool, _option(settings.STRICT)]
Observe = Annotated[bool, _option(settings.OBSERVE)]
Verify = Annotated[str | None, _option(settings.VERIFY)]
VerifyEvery = Annotated[str | None, _option(settings.VERIFY_EVERY)]
VerifySave = Annotated[str | None, _option(settings.VERIFY_SAVE)]
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
