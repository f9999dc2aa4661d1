"""How a loader is made to tell when its module has run, and leaves no trace of it.

A module must look, to its own body and to everyone after, as if we were not there: its spec and
`__loader__` hold the very loader that the finder made. So a loader that serves one module gets
`exec_module` shadowed on the instance, and the shadow is gone before the body runs. A loader that
is a class or serves many modules is covered by a proxy, which takes itself off the module first.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader, SourceFileLoader, SourcelessFileLoader
from importlib.util import LazyLoader
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType

F = TypeVar("F")

# Instances of these, and of what derives from them, are made anew for each module.
_ONE_PER_MODULE = (SourceFileLoader, SourcelessFileLoader, ExtensionFileLoader)

# CPython cuts frames of these two files out of the traceback of a failing import, and `warnings`
# skips them when it counts the stack. Our frames in between belong to the import system too.
_IMPORT_SYSTEM_FILE = "<frozen importlib._bootstrap_external>"


class Events(Protocol):
    """What the engine wants to know of a watched module. None of it raises into the import, but for
    an error that must end the process, and an interrupt."""

    def before(self, spec: ModuleSpec) -> None:
        """Its body is about to run, called by the function that runs it."""

    def failed(self, name: str, module: ModuleType | None) -> None:
        """Its body, or one of the other events, has raised."""

    def after(self, name: str, module: Any) -> None:
        """Its body has run, and nobody has been able to import a name from it yet."""


def watch(spec: ModuleSpec, events: Events) -> None:
    """Arms `spec`, so that `events` hears of the module that is made from it."""
    loader = spec.loader
    if loader is None:  # a namespace package has no body to run
        return
    if isinstance(loader, _ONE_PER_MODULE) and "exec_module" not in vars(loader):
        _shadow(loader, spec, events)
    else:
        spec.loader = LoaderProxy(loader, spec, events)  # type: ignore[assignment]


def part_of_the_import_system(function: F) -> F:
    """Marks a function whose frames are to be treated as those of the import system."""
    code = function.__code__  # type: ignore[attr-defined]
    function.__code__ = code.replace(co_filename=_IMPORT_SYSTEM_FILE)  # type: ignore[attr-defined]
    return function


def _shadow(loader: Any, spec: ModuleSpec, events: Events) -> None:
    @part_of_the_import_system
    def exec_module(module: ModuleType) -> None:
        vars(loader).pop("exec_module", None)
        _run(loader.exec_module, spec, module, events)

    loader.exec_module = exec_module


@part_of_the_import_system
def _run(
    body: Callable[[ModuleType], object], spec: ModuleSpec, module: ModuleType, events: Events
) -> None:
    # A module that is run without being in sys.modules is not being imported; nobody can import
    # a name from it, and a second copy of a target must not be taken for the target.
    if sys.modules.get(spec.name) is not module:
        body(module)
        return
    try:
        events.before(spec)
        body(module)
        events.after(spec.name, module)
    except BaseException:
        events.failed(spec.name, module)
        raise


class LoaderProxy:
    """Stands in for a loader until it is used, and answers everything else as that one would."""

    def __init__(self, loader: Any, spec: ModuleSpec, events: Events) -> None:
        self._loader, self._spec, self._events = loader, spec, events
        # Only what the loader has: the import system asks, and acts on the answer.
        if hasattr(loader, "exec_module"):
            self.exec_module = self._exec_module
        elif hasattr(loader, "load_module"):
            self.load_module = self._load_module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._loader.__class__

    @part_of_the_import_system
    def _exec_module(self, module: ModuleType) -> None:
        self._step_aside(module)
        if isinstance(self._loader, LazyLoader):
            # It only prepares the module; the body runs later, through the loader that it left in
            # the spec, when an attribute is first asked for.
            self._loader.exec_module(module)
            watch(object.__getattribute__(module, "__spec__"), self._events)
            return
        _run(self._loader.exec_module, self._spec, module, self._events)

    def _load_module(self, fullname: str) -> Any:
        """For loaders of the old kind, which make, register and run the module in one call."""
        self._spec.loader = self._loader
        try:
            self._events.before(self._spec)
            module: Any = self._loader.load_module(fullname)
            self._step_aside(module)
            self._events.after(fullname, module)
        except BaseException:
            self._events.failed(fullname, sys.modules.get(fullname))
            raise
        return module

    def _step_aside(self, module: Any) -> None:
        self._spec.loader = self._loader
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.loader is self:
            spec.loader = self._loader
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._loader
