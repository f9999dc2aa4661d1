"""Activates a process at its start, when the environment says so.

Both routes lead here, unless the kill switch is on: the start-up file in site-packages, and the
`sitecustomize` that launchers put on PYTHONPATH. Whichever comes second finds it done.

What is imported here at the top is light and our own: everything else may be missing or broken,
and then the one handler in `activate` has to know what becomes of the process.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from turbo_physai.launch.checks import CONFIG_ERROR, describe
from turbo_physai.process import ranks, settings
from turbo_physai.process.command import Command, is_path_safe
from turbo_physai.process.kind import Kind, kind_of
from turbo_physai.process.messages import warn
from turbo_physai.process.variables import make_paths_absolute, working_directory

if TYPE_CHECKING:
    from turbo_physai.launch.program import Program

_is_done = False


def activate() -> None:
    """Applies the config that the environment names; once, and not in launchers.

    Where that fails, whatever the cause, a training ends with one line on stderr and the exit code
    2, so that it never runs unpatched by accident. Any other program goes on unpatched with one
    line: it is none of our business.
    """
    global _is_done
    if _is_done:
        return
    _is_done = True
    command = Command.of_this_process()
    if command.is_run:
        return  # it has options of its own, which are not known yet
    parent_rank = settings.PARENT_RANK.text()  # this process will put its own there
    try:
        _activate(command)
    except KeyboardInterrupt:
        raise
    except SystemExit as exit_:  # strict mode, which has said why
        _exit(exit_.code if isinstance(exit_.code, int) else 1)
    except BaseException as error:
        _fail(error, kind_of(command, parent_rank))


def _activate(command: Command) -> None:
    make_paths_absolute()
    ranks.share_run_id()
    if command.is_launcher:
        return
    from turbo_physai import api

    if not command.is_worker:  # a worker has inherited where it runs
        _bind_to_placement()
    with program_folders(_folder_of(command)):
        api.activate()


def _fail(error: BaseException, kind: Kind) -> None:
    if kind == "rank" or (kind == "program" and not _is_unreachable(error)):
        _exit(CONFIG_ERROR, f"turbo_physai: {describe(error)}")
    # What has failed half-way must not go on half-way.
    finders = [each for each in sys.meta_path if type(each).__module__.startswith("turbo_physai.")]
    for finder in finders:
        sys.meta_path.remove(finder)
    with contextlib.suppress(Exception):
        warn(f"this process runs unpatched: {describe(error)}")


def _is_unreachable(error: BaseException) -> bool:
    """Whether python was told not to look where the modules of the config lie."""
    faults = getattr(error, "faults", ())
    missing = all("ModuleNotFoundError" in fault.found for fault in faults)
    return is_path_safe() and bool(faults) and missing


def activate_for(program: Program) -> None:
    """Applies the config that the environment names, for a program about to run in this process.

    Raises:
        TurboPhysAIError: the configuration is wrong.
    """
    from turbo_physai import api

    with program_folders(sys.path[0]):
        if program.is_launcher:
            api.validate()
        else:
            _bind_to_placement()
            api.activate()


def is_placement_stated() -> bool:
    """Whether a launcher has stated where the ranks of this machine run."""
    stated = (settings.NUMA, settings.RANK_AFFINITY, settings.RANK_NUMA)
    return any(setting.text() is not None for setting in stated)


def _bind_to_placement() -> None:
    if is_placement_stated():
        from turbo_physai.launch.placement import Placement

        Placement.of(os.environ).bind()


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
    above = (settings.PROGRAM_FOLDERS.text() or "").split(os.pathsep)
    here = working_directory()
    if here is None:
        warn("the working directory cannot be told; no module is looked for there")
    folders = [each for each in dict.fromkeys((own, here, *above)) if each]
    os.environ[settings.PROGRAM_FOLDERS.variable] = os.pathsep.join(folders)
    sys.path[:0] = folders
    try:
        yield
    finally:
        sys.path[:] = before


def _folder_of(command: Command) -> str | None:
    if command.kind != "script":
        return None
    try:
        path = os.path.realpath(command.name)
    except OSError:  # relative to a working directory that has been deleted
        return None
    return path if os.path.isdir(path) else os.path.dirname(path)  # noqa: PTH112, PTH120


def _exit(code: int, message: str = "") -> None:
    # An exception would be printed by `site`, which then starts the program all the same.
    with contextlib.suppress(Exception):
        if message and sys.stderr is not None:
            print(message, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            if stream is not None:
                stream.flush()
    os._exit(code)
