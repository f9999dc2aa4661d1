"""The types that an option may have, and how a value of YAML is read as one of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from turbo_physai.errors import Fault, did_you_mean

ACCEPTED: Final = (
    "bool, int, float, str, Literal[...], Any, tuple[T, ...], list[T], dict[str, T], "
    "and unions of these and None"
)


class Kind(NamedTuple):
    """A type of options.

    Attributes:
        name: as messages and tables spell it.
        read: takes a plain value, its path and a list that faults are added to, each with the path
            as its key and nowhere as its file; returns the value as the type has it.
    """

    name: str
    read: Callable[[Any, str, list[Fault]], Any]


def spelled(value: Any) -> str:
    """A plain value as YAML would read it back."""
    return json.dumps(value, default=str, ensure_ascii=False)


def described(value: Any) -> str:
    """A plain value, with its type, in a message."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if value is None:
        return "null"
    text = spelled(value)
    short = text if len(text) <= 80 else f"{text[:80]}…"
    return f"{short} ({type(value).__name__})"


def fault(path: str, value: Any, accepted: str) -> Fault:
    """A Fault of a value at `path` among the options of a Group."""
    return Fault("", described(value), accepted, path)


def kind_of(annotation: Any) -> Kind:
    """The Kind of an annotation.

    Raises:
        TypeError: it is not supported.
    """
    for type_, kind in _SIMPLE:
        if annotation is type_:
            return kind
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal and all(isinstance(a, (str, int, NoneType)) for a in arguments):
        return _literal(arguments)
    if origin in (Union, UnionType):
        return _union([kind_of(argument) for argument in arguments])
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _items(tuple, kind_of(arguments[0]))
    if origin is list:
        return _items(list, kind_of(arguments[0]))
    if origin is dict and arguments[0] is str:
        return _mapping(kind_of(arguments[1]))
    raise TypeError(f"found {annotation!r}; accepted: {ACCEPTED}")


def _any(value: Any, path: str, faults: list[Fault]) -> Any:
    return value


def _null(value: Any, path: str, faults: list[Fault]) -> None:
    if value is not None:
        faults.append(fault(path, value, "null"))


def _bool(value: Any, path: str, faults: list[Fault]) -> Any:
    if type(value) is not bool:
        faults.append(fault(path, value, "bool (true or false, without quotes)"))
    return value


def _int(value: Any, path: str, faults: list[Fault]) -> Any:
    if type(value) is not int:
        faults.append(fault(path, value, "int" + _as_number(value, int)))
    return value


def _float(value: Any, path: str, faults: list[Fault]) -> Any:
    if type(value) not in (int, float):
        faults.append(fault(path, value, "float" + _as_number(value, float)))
        return value
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        faults.append(fault(path, value, "float (finite)"))
    return number


def _as_number(value: Any, type_: type[int] | type[float]) -> str:
    """How to write a text that looks like a number; YAML 1.1 takes ``1e-4`` for a text."""
    try:
        number = type_(value) if isinstance(value, str) else None
        if number is None or not math.isfinite(number):
            return ""
    except (ValueError, OverflowError):
        return ""
    text = repr(number)
    return f" (written as {text if '.' in text else text.replace('e', '.0e')})"


def _str(value: Any, path: str, faults: list[Fault]) -> Any:
    if not isinstance(value, str):
        scalar = not isinstance(value, (dict, list, tuple, NoneType))
        faults.append(fault(path, value, "str (in quotes)" if scalar else "str"))
    return value


_SIMPLE: Final = (
    (Any, Kind("any", _any)),
    (None, Kind("null", _null)),
    (NoneType, Kind("null", _null)),
    (bool, Kind("bool", _bool)),
    (int, Kind("int", _int)),
    (float, Kind("float", _float)),
    (str, Kind("str", _str)),
)


def _literal(values: tuple[Any, ...]) -> Kind:
    name = " | ".join(map(spelled, values))
    texts = [value for value in values if isinstance(value, str)]

    def read(value: Any, path: str, faults: list[Fault]) -> Any:
        # Not by equality alone: True == 1.
        if not any(type(value) is type(each) and value == each for each in values):
            hint = did_you_mean(value, texts) if isinstance(value, str) else ""
            if isinstance(value, bool) and texts:
                hint = " (YAML reads on, off, yes and no as bool: put them in quotes)"
            faults.append(fault(path, value, name + hint))
        return value

    return Kind(name, read)


def _union(kinds: list[Kind]) -> Kind:
    name = " | ".join(dict.fromkeys(kind.name for kind in kinds))

    def read(value: Any, path: str, faults: list[Fault]) -> Any:
        hint = ""
        inside: list[Fault] = []
        for kind in kinds:
            wrong: list[Fault] = []
            result = kind.read(value, path, wrong)
            if not wrong:
                return result
            if all(each.key != path for each in wrong):  # right but for what it contains
                inside = inside or wrong
            else:
                hint = hint or wrong[0].accepted.removeprefix(kind.name)
        faults += inside or [fault(path, value, name + hint)]
        return value

    return Kind(name, read)


def _items(type_: type[tuple[Any, ...]] | type[list[Any]], item: Kind) -> Kind:
    name = f"list[{item.name}]"

    def read(value: Any, path: str, faults: list[Fault]) -> Any:
        if not isinstance(value, (list, tuple)):
            faults.append(fault(path, value, name))
            return value
        return type_(item.read(each, f"{path}[{i}]", faults) for i, each in enumerate(value))

    return Kind(name, read)


def _mapping(item: Kind) -> Kind:
    name = f"dict[str, {item.name}]"

    def read(value: Any, path: str, faults: list[Fault]) -> Any:
        if not isinstance(value, dict):
            faults.append(fault(path, value, name))
            return value
        return {key: item.read(each, f"{path}.{key}", faults) for key, each in value.items()}

    return Kind(name, read)
