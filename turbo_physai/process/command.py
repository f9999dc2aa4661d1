"""What python was told to run in this process, read from its command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

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
        "turbo_physai",
        "turbo_physai.cli",
    }
)
_RUN: Final = "turbo_physai.run"


class Command(NamedTuple):
    """What python was told to run: a script (a file, folder or zip file), a module after ``-m``, or
    code after ``-c``; nothing of these in an interactive session or where the code is read from
    standard input, which ``-`` says."""

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
            if argument == "-":
                return cls("nothing")
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
            return os.path.basename(self.name) in _LAUNCHERS
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
