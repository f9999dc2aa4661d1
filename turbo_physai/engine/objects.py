"""Finds declared objects that are to be used: replacements, factories, conditions, checks."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from turbo_physai.declarations import ObjectPath
from turbo_physai.engine.import_state import is_orphaned, is_unfinished
from turbo_physai.engine.slot import Slot, TargetError, find

if TYPE_CHECKING:
    from collections.abc import Callable


class NotReadyError(Exception):
    """The module that holds the object is still being imported, by this thread or another one."""

    def __init__(self, module: str) -> None:
        self.module = module
        super().__init__(f"the module {module} is still being imported")


def load(path: ObjectPath) -> Any:
    """The object at `path`, as its namespace stores it; its module is imported if need be.

    Raises:
        NotReadyError: the module is half-imported and does not hold the object yet.
        TargetError: the module lacks it.
        Exception: whatever importing the module raises.
    """
    module, name = _import_longest(path)
    try:
        return find(module, path.names_in(name)).effective()
    except TargetError:
        if is_unfinished(module):
            raise NotReadyError(name) from None
        raise


def place(path: ObjectPath) -> Slot:
    """The slot at `path`; its module is imported if need be.

    Raises:
        TargetError: a name on the way leads nowhere.
        Exception: whatever importing the module raises.
    """
    module, name = _import_longest(path)
    return find(module, path.names_in(name))


def call(path: ObjectPath) -> Callable[..., Any]:
    """The callable at `path`, ready to be called."""
    return as_callable(load(path))


def as_callable(held: Any) -> Callable[..., Any]:
    """A stored object, ready to be called."""
    made: Callable[..., Any] = held.__func__ if isinstance(held, staticmethod) else held
    return made


def _import_longest(path: ObjectPath) -> tuple[ModuleType, str]:
    for name in path.modules:
        _refuse_orphan(name)
        try:
            # Not importlib.import_module: where two threads import in a circle it raises, while the
            # statement's own function hands out the unfinished module.
            __import__(name)
        except ModuleNotFoundError as error:
            # A shorter prefix may be the module, unless what is missing is something else.
            is_prefix = error.name is not None and f"{name}.".startswith(f"{error.name}.")
            if name == path.modules[-1] or not is_prefix:
                raise
            continue
        return sys.modules[name], name
    raise AssertionError("a path has at least one module")


def _refuse_orphan(name: str) -> None:
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        if is_orphaned(".".join(parts[:end])):
            raise TargetError(
                f"the module {'.'.join(parts[:end])} was being imported by another thread when this"
                " process was forked, and can never be imported in it; import it before the fork"
            )


def has_own_place(obj: Any) -> bool:
    """Whether `obj` can be imported by its own name."""
    module, name = (getattr(obj, key, None) for key in ("__module__", "__qualname__"))
    if module not in sys.modules or not isinstance(name, str):
        return False
    try:
        return find(sys.modules[module], name.split(".")).effective() is obj
    except TargetError:
        return False
