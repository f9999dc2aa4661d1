"""Finds declared objects that are to be used: replacements, factories, conditions, checks."""

from __future__ import annotations

import sys
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from turbo_physai.declarations.names import ObjectPath
from turbo_physai.engine.import_state import is_orphaned, is_unfinished
from turbo_physai.engine.slot import Slot, TargetError, find
from turbo_physai.evidence import examine, locate
from turbo_physai.evidence.definitions import Definition
from turbo_physai.report import Origin

if TYPE_CHECKING:
    from collections.abc import Callable


class NotReadyError(Exception):
    """The module that holds the object is still being imported, by this thread or another one."""

    def __init__(self, module: str) -> None:
        self.module = module
        super().__init__(f"the module {module} is still being imported")


def load(path: str) -> Any:
    """The object at `path`, as its namespace stores it; its module is imported if need be.

    Raises:
        NotReadyError: the module is half-imported and does not hold the object yet.
        TargetError: the module lacks it.
        Exception: whatever importing the module raises.
    """
    parsed = ObjectPath.parse(path)
    module, name = _import_longest(parsed)
    try:
        return find(module, parsed.names_in(name)).effective()
    except TargetError:
        if is_unfinished(module):
            raise NotReadyError(name) from None
        raise


def place(path: str) -> Slot:
    """The slot at `path`; its module is imported if need be.

    Raises:
        TargetError: a name on the way leads nowhere.
        Exception: whatever importing the module raises.
    """
    parsed = ObjectPath.parse(path)
    module, name = _import_longest(parsed)
    return find(module, parsed.names_in(name))


def call(path: str) -> Callable[..., Any]:
    """The callable at `path`, ready to be called."""
    held = load(path)
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
                " process was forked, and can never be imported in it"
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


def origin(held: Any) -> Origin:
    """Where a stored object was defined."""
    obj = held.__func__ if isinstance(held, (staticmethod, classmethod)) else held
    if isinstance(obj, property):
        obj = obj.fget
    names = (getattr(obj, "__module__", None), getattr(obj, "__qualname__", None))
    name = ".".join(part for part in names if isinstance(part, str)) or repr(obj)
    code = getattr(obj, "__code__", None)
    if isinstance(code, CodeType):
        return Origin(name, code.co_filename, code.co_firstlineno)
    spec = locate.locate(names[0]) if isinstance(names[0], str) and names[0] else None
    if spec is None or not isinstance(names[1], str):
        return Origin(name)
    found = examine.read(ObjectPath.parse(f"{names[0]}:{names[1]}"), spec).found
    line = found.line if isinstance(found, Definition) else None
    return Origin(name, spec.origin, line)
