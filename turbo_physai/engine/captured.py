"""Captured references: who else holds an object that was replaced in its own place.

`from m import f` copies a reference. Where that happened before `m.f` was changed, the names that
hold the original are found by identity, among the globals of loaded modules and in the classes that
were defined there, and can be changed too. References inside other objects cannot: those are named.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Container, Iterator
from types import BuiltinMethodType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import attrs

from turbo_physai.engine.import_state import is_unfinished
from turbo_physai.engine.slot import Slot, namespace


@attrs.define
class Holders:
    """Where an object was found.

    Attributes:
        allowed: objects that may hold it: our own wrappers.
        slots: entries that hold it and can be changed, with their dotted names.
        fixed: names of the holders that cannot.
        unfinished: modules that were still being imported and were therefore not looked into.
    """

    allowed: tuple[Any, ...]
    slots: list[tuple[str, Slot]] = attrs.field(factory=list)
    fixed: list[str] = attrs.field(factory=list)
    unfinished: set[str] = attrs.field(factory=set)

    def allow(self, value: Any) -> bool:
        return any(value is each for each in self.allowed)


def is_held_by_others(obj: Any, allowed: tuple[Any, ...]) -> bool:
    """Whether an object besides `allowed` and those of the engine refers to `obj`.

    One pass of the garbage collector, and ten times faster than a search through the names of all
    loaded modules, which most originals turn out not to need.
    """
    ours = {id(allowed), *map(id, allowed)}
    for each in allowed:
        if isinstance(each, FunctionType):
            ours.update(id(cell) for cell in each.__closure__ or ())
            ours.add(id(vars(each)))  # a factory may have kept it there
    return any(
        id(holder) not in ours
        and type(holder) is not FrameType
        and not type(holder).__module__.startswith("turbo_physai.engine.")
        for holder in gc.get_referrers(obj)
    )


def is_held_by_nobody_else(slot: Slot, known: int) -> bool:
    """Whether nothing but the namespace of `slot`, and `known` objects of ours, refers to the
    function that it holds; stacks included.

    Counted, not searched for: a search takes a pass of the garbage collector. False for anything
    but a function, whose references others cannot know of, and in a build without the GIL.
    """
    if type(slot.raw()) is not FunctionType or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    # One reference is the namespace's, and one that of the argument.
    return sys.getrefcount(namespace(slot.owner)[slot.name]) <= 2 + known


def search(
    obj: Any,
    done: Container[str],
    skip: Container[str],
    only: Container[str] | None = None,
    allowed: tuple[Any, ...] = (),
) -> Holders:
    """Everyone who holds `obj`.

    Args:
        obj: the original.
        done: modules whose body has ended although the import system still calls them unfinished.
        skip: modules that are to keep it, such as that of the replacement.
        only: the modules to look into; all of them if None.
        allowed: what took its place, and may hold it to call it.
    """
    holders = Holders(allowed)
    # Modules that are named had yet to end: what they held on the stack, unseen by the garbage
    # collector, may be a name by now.
    is_held = only is not None or is_held_by_others(obj, allowed)
    seen: set[int] = set()
    for name, module in list(sys.modules.items()):
        if name in skip or (only is not None and name not in only):
            continue
        if not issubclass(type(module), ModuleType) or id(module) in seen:
            continue
        seen.add(id(module))
        if name not in done and is_unfinished(module):
            holders.unfinished.add(name)
            continue
        if is_held:
            _search_module(name, module, obj, holders)
    if only is None and isinstance(obj, type):
        subclasses: list[type] = type.__subclasses__(obj)
        for sub in subclasses:
            holders.fixed.append(f"the subclass {sub.__module__}.{sub.__qualname__}")
        if instances := _count_instances(obj):
            holders.fixed.append(f"{instances} instance(s) made before")
    return holders


def _count_instances(cls: type) -> int:
    # Not in `search`, whose object must be in no closure: the cell would count as a holder.
    return sum(type(each) is cls for each in gc.get_objects())


def _search_module(name: str, module: ModuleType, obj: Any, holders: Holders) -> None:
    # Not vars(): that would wake a module that waits to be loaded.
    for key, value in list(object.__getattribute__(module, "__dict__").items()):
        if value is obj:
            holders.slots.append((f"{name}.{key}", Slot(module, key)))
        elif issubclass(type(value), type):
            if value.__module__ == name:
                _search_class(f"{name}.{key}", value, obj, holders)
        elif _holds(value, obj, name) and not holders.allow(value):
            holders.fixed.append(f"{name}.{key}")


def _search_class(path: str, cls: type, obj: Any, holders: Holders) -> None:
    for key, value in list(vars(cls).items()):
        if value is obj:
            holders.slots.append((f"{path}.{key}", Slot(cls, key)))
        elif issubclass(type(value), type):
            if value.__qualname__ == f"{cls.__qualname__}.{key}":
                _search_class(f"{path}.{key}", value, obj, holders)
        elif _holds(value, obj, cls.__module__) and not holders.allow(value):
            holders.fixed.append(f"{path}.{key}")


def _holds(value: Any, obj: Any, module: str) -> bool:
    """Whether `value`, found in `module`, holds `obj` one level down.

    Only objects of known types are looked into, and by their real type: a proxy that stands for
    something not loaded yet must not wake.
    """
    return any(held is obj for held in _inside(value, module))


def _inside(value: Any, module: str) -> Iterator[Any]:
    kind = type(value)
    if kind in (staticmethod, classmethod):
        value, kind = value.__func__, type(value.__func__)
        yield value
    if kind is FunctionType:
        if value.__module__ == module:
            yield from value.__defaults__ or ()
            yield from (value.__kwdefaults__ or {}).values()
            for cell in value.__closure__ or ():
                try:
                    yield cell.cell_contents
                except ValueError:  # a cell that is still empty
                    continue
    elif kind in (tuple, list, set, frozenset):
        yield from list(value)
    elif kind is dict:
        yield from list(value.values())
    elif kind is functools.partial:
        yield value.func
    elif kind in (MethodType, BuiltinMethodType):
        yield value.__self__
