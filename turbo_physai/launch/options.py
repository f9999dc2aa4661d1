"""What both launchers can be told, and the environment that tells it to every process below."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

import attrs

from turbo_physai.config import select
from turbo_physai.process import ranks, settings
from turbo_physai.process.settings import Setting
from turbo_physai.process.variables import absolute, make_paths_absolute

BOOTSTRAP: Final = str(Path(__file__).parent / "bootstrap")


MODEL: Final = Setting(
    "",
    "text",
    "Use the config of a model; `turbo-physai models` lists them.",
    "--model NAME",
)

# The options that both launchers have.
SHARED: Final = (MODEL, *(setting for setting in settings.ALL if setting.option))


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
    observe: bool = False
    verify: str | None = None
    verify_every: str | None = None
    verify_save: str | None = None
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
            settings.OBSERVE: "1" if self.observe else None,
            settings.VERIFY: self.verify,
            settings.VERIFY_EVERY: self.verify_every,
            settings.VERIFY_SAVE: self.verify_save and absolute(self.verify_save),
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
