"""What a launcher can be told, and how it reaches the processes that a program starts."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from turbo_physai import api
from turbo_physai.config import select
from turbo_physai.config.selection import CONFIG_VARIABLE
from turbo_physai.report import ranks
from turbo_physai.report.journal import REPORT_DIR_VARIABLE


@attrs.frozen
class Options:
    """The options that both launchers share; each has an environment variable of its own."""

    model: str | None = None
    optimization_config: str | None = None
    force_groups: tuple[str, ...] = ()
    disable_groups: tuple[str, ...] = ()
    log_report: bool = False
    report_dir: str | None = None

    def environment(self) -> dict[str, str]:
        """The variables that activate a process with these options, paths made absolute.

        Raises:
            OptimizationConfigNotFoundError: the config that was asked for is not there.
        """
        variables = {
            CONFIG_VARIABLE: str(select(self.optimization_config, self.model)),
            ranks.RUN_ID_VARIABLE: os.environ.get(ranks.RUN_ID_VARIABLE) or ranks.new_run_id(),
        }
        if self.force_groups:
            variables[api.FORCE_VARIABLE] = ",".join(self.force_groups)
        if self.disable_groups:
            variables[api.DISABLE_VARIABLE] = ",".join(self.disable_groups)
        if self.log_report:
            variables[api.LOG_VARIABLE] = "1"
        if self.report_dir is not None:
            variables[REPORT_DIR_VARIABLE] = str(Path(self.report_dir).absolute())
        return variables
