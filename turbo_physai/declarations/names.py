"""Dotted names: how declared paths are checked and taken apart."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen
class ObjectPath:
    """A declared path of an object: ``pkg.mod.Class.method``, or ``pkg.mod:Class.method``.

    Attributes:
        text: the path as declared.
        parts: its names.
        split: how many of them name the module; None where no colon says so.
    """

    text: str
    parts: tuple[str, ...]
    split: int | None

    @classmethod
    def parse(cls, text: str) -> ObjectPath:
        module, colon, name = text.partition(":")
        parts = (*module.split("."), *(name.split(".") if colon else ()))
        return cls(text, parts, len(module.split(".")) if colon else None)

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that may hold the object, longest first."""
        if self.split is not None:
            return (".".join(self.parts[: self.split]),)
        return tuple(".".join(self.parts[:n]) for n in range(len(self.parts) - 1, 0, -1))

    def names_in(self, module: str) -> tuple[str, ...]:
        """What remains of the path inside `module`, one of `modules`."""
        return self.parts[module.count(".") + 1 :]

    @property
    def dotted(self) -> str:
        """The path without its colon: two spellings of one target are equal in it."""
        return ".".join(self.parts)


def module_path(value: Any, what: str) -> str:
    """Checks that `value` is the dotted name of a module and returns it."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a text such as 'pkg.mod', found {value!r}")
    if not all(part.isidentifier() for part in value.split(".")):
        raise ValueError(f"{what} is a dotted name such as 'pkg.mod', found {value!r}")
    return value


def object_path(value: Any, what: str) -> str:
    """Checks that `value` is the path of an object inside a module and returns it."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a text such as 'pkg.mod.name', found {value!r}")
    parts = value.replace(":", ".", 1).split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise ValueError(
            f"{what} is a dotted name such as 'pkg.mod.name' or 'pkg.mod:Class.method', "
            f"found {value!r}"
        )
    return value


def overlap(one: str, other: str) -> bool:
    """Whether one of two modules is the other or lies inside it."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def of_others(path: str, what: str) -> str:
    """Checks that `path`, which is to be changed, is not one of ours and returns it."""
    if ObjectPath.parse(path).parts[0] == "turbo_physai":
        raise ValueError(f"{what}: turbo_physai does not change itself, found {path!r}")
    return path


def texts(value: Any, what: str) -> tuple[str, ...]:
    """Checks that `value` is a sequence of texts; one plain text is the mistake it looks for."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise TypeError(f"{what} is a sequence of texts such as ('a', 'b'), found {value!r}")
    result = tuple(value)
    for item in result:
        if not isinstance(item, str):
            raise TypeError(f"{what} is a sequence of texts, found {item!r} in it")
    return result
