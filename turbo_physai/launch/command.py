"""Becomes a command, in an environment that activates every Python process which it starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from turbo_physai import api
from turbo_physai.launch.activation import program_folders
from turbo_physai.launch.checks import require
from turbo_physai.launch.options import Options
from turbo_physai.launch.runtime import Runtime

# What a shell answers when a command cannot be run.
_NOT_EXECUTABLE: Final = 126
_NOT_FOUND: Final = 127


def become(command: Sequence[str], options: Options, runtime: Runtime) -> NoReturn:
    """Checks everything, sets the environment, and replaces this process by `command`.

    If anything is wrong, all of it is said on stderr, nothing is started and the exit code is 2.
    """
    if options.is_off:
        options.export(os.environ)
    else:
        require(runtime.apply, lambda: export_valid(options))
    sys.stdout.flush()
    try:
        os.execvp(command[0], list(command))
    except (OSError, ValueError) as error:  # the latter of a NUL or an empty name
        why = getattr(error, "strerror", error)
        print(f"turbo_physai: {command[0]}: {why}", file=sys.stderr)
        sys.exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)


def export_valid(options: Options) -> None:
    """Sets the variables that activate the processes below, for a config that is right.

    Raises:
        TurboPhysAIError: it is not.
    """
    # Whoever starts any command in any folder has not chosen a config that happens to lie there.
    options.export(os.environ, from_folder=False)
    with program_folders(None):
        api.validate()
