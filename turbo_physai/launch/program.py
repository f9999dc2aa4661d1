"""Runs a program in this process exactly as ``python SCRIPT`` or ``python -m MODULE`` does.

What python itself does is left to python where that can be: modules, folders and zip files go
through the very function of `runpy` that the interpreter calls.
"""

from __future__ import annotations

import builtins
import os
import runpy
import sys
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

import attrs

from turbo_physai.errors import TurboPhysAIError
from turbo_physai.process.command import Command, is_path_safe
from turbo_physai.process.variables import absolute, working_directory

# The launcher's own `__main__` must outlive the moment in which another module takes its place.
_launchers: list[ModuleType | None] = []


class ProgramError(TurboPhysAIError):
    """There is no such program."""


@attrs.frozen
class Program:
    """What follows the options of the launcher: a script or module, and its arguments. A script
    that is named ``-`` is read from standard input."""

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    def require(self) -> None:
        """Raises ProgramError if there is no such script. Whether there is such a module is found
        out by importing its parents, which is part of running it."""
        if not self.is_module and not self._is_input and not Path(self.name).exists():
            raise ProgramError(f"can't open file {self._file!r}: no such file")

    def prepare(self) -> None:
        """Makes `sys.argv` and `sys.path` what they are when the program starts."""
        sys.argv = ["-m" if self.is_module else self.name, *self.arguments]
        if self.is_module:
            return  # python has put the working directory first, for us as it does for any module
        if not is_path_safe() and working_directory() is not None:
            del sys.path[0]
        if self._is_container:
            sys.path.insert(0, self._file)
        elif not is_path_safe():
            own = "" if self._is_input else str(Path(os.path.realpath(self.name)).parent)
            sys.path.insert(0, own)

    def run(self) -> None:
        """Runs it as `__main__`, which stays in place afterwards for its threads, exit handlers and
        spawned children. Whatever it raises is raised, and shows no frame of the launcher."""
        try:
            if self.is_module:
                _become_main()
                _run_module(self.name, alter_argv=True)
            elif self._is_input:
                _run_input()
            elif self._is_container:
                _become_main()
                _run_module("__main__", alter_argv=False)
            else:
                self._run_script()
        except BaseException:
            _cut_tracebacks()
            raise

    @property
    def is_launcher(self) -> bool:
        """Whether it only starts the processes that are to be activated."""
        return Command("module" if self.is_module else "script", self.name).is_launcher

    @property
    def _file(self) -> str:
        """The absolute path as python makes it, which leaves a ``./`` or ``../`` in it alone."""
        return absolute(self.name)

    @property
    def _is_input(self) -> bool:
        return not self.is_module and self.name == "-"

    @property
    def _is_container(self) -> bool:
        """Whether it is a folder or a zip file: something to be searched for a `__main__`."""
        if self._is_input:
            return False
        path = Path(self.name)
        if not path.is_file():  # a pipe must not be read to find out
            return path.is_dir()
        import zipfile

        return zipfile.is_zipfile(path)

    def _run_script(self) -> None:
        file = self._file
        main = _become_main()
        loader: Any = SourceFileLoader("__main__", file)
        code: CodeType | None
        if file.endswith(".pyc"):
            loader = SourcelessFileLoader("__main__", file)
            code = loader.get_code("__main__")
        else:
            code = compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
        assert code is not None
        vars(main).update(__file__=file, __loader__=loader, __cached__=None)
        exec(code, vars(main))


def _run_input() -> None:
    main = _become_main()
    source = sys.stdin.buffer.read()
    # Its name has no file behind it, and is there only as long as the script runs.
    vars(main).update(__file__="<stdin>", __loader__=BuiltinImporter, __cached__=None)
    try:
        exec(compile(source, "<stdin>", "exec", dont_inherit=True), vars(main))
    finally:
        vars(main).pop("__file__", None)
        vars(main).pop("__cached__", None)


def _run_module(name: str, *, alter_argv: bool) -> None:
    # Private by its name, yet a fixed point: the interpreter's own C code calls it for -m.
    runpy._run_module_as_main(name, alter_argv)  # type: ignore[attr-defined]


def _become_main() -> ModuleType:
    """Puts a new module in the place of `__main__`, as the interpreter makes it at its start."""
    _launchers.append(sys.modules.get("__main__"))
    main = ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    if sys.version_info < (3, 14):
        vars(main)["__annotations__"] = {}
    sys.modules["__main__"] = main
    return main


def _cut_tracebacks() -> None:
    """Keeps the launcher's frames out of the traceback that python is about to print.

    The program has ended with an error, which must go up through our frames for python to print it
    and set the exit code. Only now is the hook that prints it wrapped, so the program never saw it.
    """
    hook = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        own = Program.run.__code__
        at = traceback
        while at is not None and at.tb_frame.f_code is not own:
            at = at.tb_next
        if at is not None:
            traceback = _past_ours(at.tb_next)
        error.__traceback__ = sys.last_traceback = traceback
        hook(kind, error, traceback)

    sys.excepthook = excepthook


def _past_ours(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback
