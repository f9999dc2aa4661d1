"""Dotted names: how declared paths are checked and taken apart."""

from __future__ import annotations

from functools import cached_property
from typing import Any


class ObjectPath(str):
    """A declared path of an object: ``pkg.mod.Class.method``, or ``pkg.mod:Class.method``, where
    the colon says which part is the module. A text that is taken apart once."""

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """Its names."""
        module, colon, name = self.partition(":")
        return (*module.split("."), *(name.split(".") if colon else ()))

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """The modules that may hold the object, longest first."""
        module, colon, _ = self.partition(":")
        if colon:
            return (module,)
        return tuple(".".join(self.parts[:n]) for n in range(len(self.parts) - 1, 0, -1))

    def names_in(self, module: str) -> tuple[str, ...]:
        """What remains of the path inside `module`, one of `modules`."""
        return self.parts[module.count(".") + 1 :]

    @property
    def dotted(self) -> str:
        """The path without its colon: two spellings of one target are equal in it."""
        return self.replace(":", ".")


def module_path(value: Any, what: str) -> str:
    """Checks that `value` is the dotted name of a module and returns it."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a text such as 'pkg.mod', found {value!r}")
    if not all(part.isidentifier() for part in value.split(".")):
        raise ValueError(f"{what} is a dotted name such as 'pkg.mod', found {value!r}")
    return value


def object_path(value: Any, what: str) -> ObjectPath:
    """Checks that `value` is the path of an object inside a module and returns it."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a text such as 'pkg.mod.name', found {value!r}")
    parts = value.replace(":", ".", 1).split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise ValueError(
            f"{what} is a dotted name such as 'pkg.mod.name' or 'pkg.mod:Class.method', "
            f"found {value!r}"
        )
    return ObjectPath(value)


def changed_module(value: Any, what: str) -> str:
    """Checks that `value` is the name of a module that may be changed and returns it."""
    return _not_ours(module_path(value, what), what)


def changed_object(value: Any, what: str) -> ObjectPath:
    """Checks that `value` is the path of an object that may be changed and returns it."""
    return ObjectPath(_not_ours(object_path(value, what), what))


def one_name(value: Any, what: str) -> str:
    """Checks that `value` is one name and returns it."""
    if not isinstance(value, str) or not value.isidentifier():
        raise ValueError(f"{what} is one name, found {value!r}")
    return value


def overlap(one: str, other: str) -> bool:
    """Whether one of two modules is the other or lies inside it."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def texts(value: Any, what: str) -> tuple[str, ...]:
    """Checks that `value` is a sequence of texts; one plain text is the mistake it looks for."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise TypeError(f"{what} is a sequence of texts such as ('a', 'b'), found {value!r}")
    result = tuple(value)
    for item in result:
        if not isinstance(item, str):
            raise TypeError(f"{what} is a sequence of texts, found {item!r} in it")
    return result


def _not_ours(path: str, what: str) -> str:
    if ObjectPath(path).parts[0] == "turbo_physai":
        raise ValueError(f"{what}: turbo_physai does not change itself, found {path!r}")
    return path
