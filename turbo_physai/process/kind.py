"""Which processes must not run without the Groups that were asked for, and which must run anyway.

The variable that activates a process is often exported for a whole shell or container, where most
python processes train nothing: installers, linters, snippets of scripts. A configuration that is
wrong must stop the training, and nothing else.
"""

from __future__ import annotations

import os
import sys
from typing import Final, Literal

from turbo_physai.process import ranks
from turbo_physai.process.command import Command, is_path_safe
from turbo_physai.process.variables import working_directory

Kind = Literal["rank", "program", "tool", "code", "isolated", "helper"]

# Kinds that train: they do not start unless they can be patched, and runs are judged by them.
TRAINING: Final = ("rank", "program")

# Installed programs that run the user's code inside of their own process.
_HOSTS: Final = frozenset(
    {
        "cProfile",
        "coverage",
        "debugpy",
        "default_worker.py",  # Ray's
        "kernprof",
        "memray",
        "pdb",
        "profile",
        "runpy",
        "scalene",
        "trace",
        "turbo_physai.run",
        "viztracer",
    }
)
_INSTALLED: Final = ("site-packages", "dist-packages")
_SYSTEM_BIN: Final = ("/bin", "/usr/bin", "/usr/local/bin")
# What installers tell the processes that build a package.
_BUILDING: Final = ("PIP_BUILD_TRACKER", "PEP517_BUILD_BACKEND", "_PYPROJECT_HOOKS_BUILD_BACKEND")


def kind_of(command: Command, parent_rank: str | None) -> Kind:
    """What this process is.

    Args:
        command: what python was told to run in it.
        parent_rank: the rank of the nearest process above that was activated, as that stated it.

    Returns:
        ``rank``: started by a distributed launcher as one of several.
        ``program``: a script or module of the user's own.
        ``tool``: a program that is installed in an environment.
        ``code``: what stands after ``-c`` or comes from standard input, or a session.
        ``isolated``: started with ``-I``, by a program that wants nothing from its environment.
        ``helper``: a worker of `multiprocessing`, or another process below a rank.
    """
    rank = ranks.stated_rank()
    if command.is_worker or (rank is not None and parent_rank == str(rank)):
        return "helper"
    if command.kind in ("code", "nothing"):
        return "code"
    if ranks.is_started_as_rank():
        return "rank"
    if sys.flags.isolated:
        return "isolated"
    return "tool" if _is_tool(command) else "program"


def _is_tool(command: Command) -> bool:
    name = os.path.basename(command.name) if command.kind == "script" else command.name
    if name in _HOSTS:
        return False
    if any(variable in os.environ for variable in _BUILDING):
        return True
    return _is_tool_script(command.name) if command.kind == "script" else _is_installed(name)


def _is_tool_script(path: str) -> bool:
    try:
        folders = {os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path))}
    except (OSError, ValueError):  # in a working directory that has been deleted
        return False
    return any(_is_inside_environment(folder) or _is_bin(folder) for folder in folders)


def _is_bin(folder: str) -> bool:
    """Whether it is where an environment or the system keeps its commands."""
    if os.path.basename(folder) != "bin":
        return False
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, os.path.expanduser("~/.local"))
    return folder in _SYSTEM_BIN or os.path.dirname(folder) in {
        path for prefix in prefixes for path in (prefix, os.path.realpath(prefix))
    }


def _is_installed(module: str) -> bool:
    """Whether ``-m`` finds the module among the installed ones; nothing is imported for it."""
    from importlib.machinery import PathFinder

    top = module.partition(".")[0]
    try:
        # The working directory comes first, and python puts it there only after this.
        here = None if is_path_safe() else working_directory()
        path = sys.path if here is None else [here, *sys.path]
        spec = PathFinder.find_spec(top, path)
    except Exception:  # of anybody's path hook
        return False
    if spec is None:
        return top in sys.stdlib_module_names
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return bool(places) and all(map(_is_inside_environment, places))


def _is_inside_environment(path: str) -> bool:
    """Whether it lies among installed modules or in the standard library."""
    standard = os.path.join(os.path.dirname(os.__file__), "")
    return f"{path}/".startswith(standard) or not set(path.split(os.sep)).isdisjoint(_INSTALLED)
