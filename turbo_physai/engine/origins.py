"""Where objects come from: their own qualified names, files and lines, for the report."""

from __future__ import annotations

import functools
import inspect
from types import CodeType, MethodType, ModuleType
from typing import Any

from turbo_physai.declarations import ObjectPath
from turbo_physai.engine.records import Origin
from turbo_physai.evidence import examine
from turbo_physai.evidence.definitions import Definition


def origin(path: ObjectPath, held: Any) -> Origin:
    """Where the object that is stored as `held` at a declared path was defined.

    The source tells it best, for a decorator hides what it decorates. Where there is no definition
    at the path, or somebody has put another object there, the object itself tells.
    """
    live, source = _of_object(held), examine.read(path)
    if not isinstance(source.found, Definition):
        return live
    defined = Origin(source.name, source.file, source.found.line)
    is_same = (live.file, live.line) == (defined.file, defined.line)
    return defined if is_same or live.line is None or source.found.is_decorated else live


def origin_of_module(module: ModuleType) -> Origin:
    """Where a module was loaded from."""
    return Origin(module.__name__, getattr(module, "__file__", None))


def _of_object(held: Any) -> Origin:
    if isinstance(held, ModuleType):
        return origin_of_module(held)
    obj = _undecorated(held)
    names = (getattr(obj, "__module__", None), getattr(obj, "__qualname__", None))
    name = ".".join(part for part in names if isinstance(part, str)) or repr(obj)
    code = getattr(obj, "__code__", None)
    if isinstance(code, CodeType):
        return Origin(name, code.co_filename, code.co_firstlineno)
    return Origin(name)


def _undecorated(held: Any) -> Any:
    """The function in a descriptor, partial or decorator that shows what it holds."""
    obj = held
    for _ in range(8):  # deeper than anybody decorates; proxies may answer for ever
        if isinstance(obj, (staticmethod, classmethod, MethodType)):
            obj = obj.__func__
        elif isinstance(obj, property) and obj.fget is not None:
            obj = obj.fget
        elif isinstance(obj, (functools.cached_property, functools.partial)):
            obj = obj.func
        elif inspect.isfunction(obj) and hasattr(obj, "__wrapped__"):
            obj = obj.__wrapped__
        else:
            break
    return obj
