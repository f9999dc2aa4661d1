"""Activates a process at its start, when the environment says so.

Both routes lead here, unless the kill switch is on: the start-up file in site-packages, and the
`sitecustomize` that launchers put on PYTHONPATH. Whichever comes second finds it done.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from turbo_physai import api
from turbo_physai.errors import TurboPhysAIError
from turbo_physai.launch.checks import CONFIG_ERROR
from turbo_physai.launch.placement import Placement
from turbo_physai.process import ranks
from turbo_physai.process.command import Command, is_path_safe

if TYPE_CHECKING:
    from turbo_physai.launch.program import Program

# The folders of the programs above this process, nearest first; not for users to set.
FOLDERS_VARIABLE: Final = "TURBO_PHYSAI_PROGRAM_FOLDERS"

_is_done = False


def activate() -> None:
    """Applies the config that the environment names; once, and not in launchers.

    A configuration that is wrong ends the process with one line on stderr and the exit code 2.
    """
    global _is_done
    if _is_done:
        return
    _is_done = True
    command = Command.of_this_process()
    if command.is_run:
        return  # it has options of its own, which are not known yet
    ranks.share_run_id()
    if command.is_launcher:
        return
    if not command.is_worker:  # a worker has inherited where it runs
        Placement.of(os.environ).bind()
    try:
        with program_folders(_folder_of(command)):
            api.activate()
    except TurboPhysAIError as error:
        _exit(CONFIG_ERROR, "; ".join(f"turbo_physai: {error}".splitlines()))
    except SystemExit as exit_:  # strict mode, which has said why
        _exit(exit_.code if isinstance(exit_.code, int) else 1)


def activate_for(program: Program) -> None:
    """Applies the config that the environment names, for a program about to run in this process.

    Raises:
        TurboPhysAIError: the configuration is wrong.
    """
    with program_folders(sys.path[0]):
        if program.is_launcher:
            api.validate()
        else:
            Placement.of(os.environ).bind()
            api.activate()


@contextlib.contextmanager
def program_folders(own: str | None) -> Iterator[None]:
    """Lets the modules of a config lie beside the program, or in the working directory, wherever
    it is loaded: python puts the program's folder in front of `sys.path` only after its start-up
    files have run, and the workers and helpers of a program, which are activated with the same
    config, lie elsewhere.

    Args:
        own: the folder of this process's program, None if it has none.
    """
    if is_path_safe():
        yield
        return
    before = sys.path[:]
    above = os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep)
    folders = [folder for folder in dict.fromkeys((own, str(Path.cwd()), *above)) if folder]
    os.environ[FOLDERS_VARIABLE] = os.pathsep.join(folders)
    sys.path[:0] = folders
    try:
        yield
    finally:
        sys.path[:] = before


def _folder_of(command: Command) -> str | None:
    if command.kind != "script":
        return None
    path = Path(os.path.realpath(command.name))
    return str(path if path.is_dir() else path.parent)


def _exit(code: int, message: str = "") -> None:
    # An exception would be printed by `site`, which then starts the program all the same.
    if message and sys.stderr is not None:
        print(message, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)
