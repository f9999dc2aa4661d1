"""Which of the many processes of a launch leaves a report.

A launch is a tree: a launcher starts ranks, ranks start workers and helpers. Each of these may be
activated, yet what a run did is told by its ranks alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import attrs

from turbo_physai.config.selection import CONFIG_VARIABLE
from turbo_physai.report import ranks

# The rank of the nearest process above this one that was activated; not for users to set.
PARENT_VARIABLE: Final = "TURBO_PHYSAI_PARENT_RANK"

# Commands that start a training and never train themselves, as a script's name or a module's.
_LAUNCHERS: Final = frozenset(
    {
        "accelerate",
        "accelerate.commands.launch",
        "deepspeed",
        "deepspeed.launcher.launch",
        "deepspeed.launcher.runner",
        "horovodrun",
        "ray",
        "torch.distributed.launch",
        "torch.distributed.run",
        "torchrun",
        "turbo-physai",
        "turbo_physai.cli",
    }
)
_RUN: Final = "turbo_physai.run"


@attrs.frozen
class Command:
    """What python was told to run: a script (a file, folder or zip file), a module after ``-m``, or
    code after ``-c``; nothing of these in an interactive session."""

    kind: Literal["script", "module", "code", "nothing"]
    name: str = ""

    @classmethod
    def of_this_process(cls) -> Command:
        # Not sys.argv, which belongs to the program and changes.
        return cls.parse(sys.orig_argv[1:])

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Command:
        """The command in `arguments`, which begin with the options of the interpreter."""
        rest = iter(arguments)
        for argument in rest:
            if not argument.startswith("-"):
                return cls("script", argument)
            if argument.startswith("--"):
                if argument == "--check-hash-based-pycs":
                    next(rest, "")
                continue
            found = cls._after_option(argument, rest)
            if found is not None:
                return found
        return cls("nothing")

    @classmethod
    def _after_option(cls, argument: str, rest: Iterator[str]) -> Command | None:
        # Letters may stand together, and the last may hold its value: -Im pkg, -umpkg, -Wignore.
        for i, letter in enumerate(argument[1:], start=2):
            if letter in "cmWX":
                value = argument[i:] or next(rest, "")
                if letter in "cm":
                    return cls("code" if letter == "c" else "module", value)
                break
        return None

    @property
    def is_launcher(self) -> bool:
        """Whether it only starts other processes."""
        if self.kind == "script":
            return os.path.basename(self.name) in _LAUNCHERS  # noqa: PTH119 - runs at every start
        return self.kind == "module" and self.name in _LAUNCHERS

    @property
    def is_run(self) -> bool:
        """Whether it is ``-m turbo_physai.run``, which activates the process itself."""
        return self.kind == "module" and self.name == _RUN

    @property
    def is_worker(self) -> bool:
        """Whether `multiprocessing` started it: a spawned child, or a server of forked ones."""
        return self.kind == "code" and self.name.startswith("from multiprocessing.")


def is_path_safe() -> bool:
    """Whether python was told to put no folder of the program in front of `sys.path`."""
    return bool(getattr(sys.flags, "safe_path", sys.flags.isolated))


class Reporter:
    """Whether the process that creates it leaves a report."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._command = Command.of_this_process()
        self._parent = os.environ.get(PARENT_VARIABLE)
        os.environ[PARENT_VARIABLE] = _rank_or_none()

    @property
    def is_this_process(self) -> bool:
        """False in a forked child."""
        return os.getpid() == self._pid

    def reports(self, has_acted: bool) -> bool:
        """Whether this process leaves a report, as far as can be told now.

        A forked child and a launcher never do. A worker of `multiprocessing` does if it has a rank
        that its parent has not. A helper - a process that shares the rank of an activated one above
        it, or code after ``-c`` in a launch that is activated by the environment - does from the
        moment in which a Group has acted in it. Any other process does from its start.
        """
        if not self.is_this_process or self._command.is_launcher:
            return False
        rank = _rank_or_none()
        if self._command.is_worker or _is_child_of_multiprocessing():
            return rank != (self._parent or _NO_RANK)
        by_environment = bool(os.environ.get(CONFIG_VARIABLE))
        is_helper = rank == self._parent or (self._command.kind == "code" and by_environment)
        return has_acted or not is_helper


_NO_RANK: Final = "none"


def _rank_or_none() -> str:
    rank = ranks.stated_rank()
    return _NO_RANK if rank is None else str(rank)


def _is_child_of_multiprocessing() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
