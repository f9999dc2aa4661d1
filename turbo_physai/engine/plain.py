"""Plain data of any value: what a report can hold, as JSON and as text, whatever it was given."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any, Final

import attrs

_DEPTH: Final = 6
_ITEMS: Final = 100
_VALUES: Final = 200
_CHARACTERS: Final = 1000
_INTEGER_BITS: Final = 64

Plain = None | bool | int | float | str | list[Any] | dict[str, Any]


def plain(value: Any) -> Plain:
    """`value` as JSON data: a copy, cut to a bounded depth and size.

    What JSON has no form for is given as text. Raises no Exception, whatever the value's own
    methods do. An array or tensor is named by its type, shape and dtype: its content is not read,
    since that may be large and may wait for a device.
    """
    return _Conversion().read(value, _DEPTH)


def text(value: Any) -> str:
    """`str(value)`, bounded and printable. Raises no Exception."""
    try:
        return _bounded(str(value))
    except Exception as error:
        return f"<{_type(value)}: its __str__ raises {type(error).__name__}>"


def shown(value: Any) -> str:
    """`repr(value)`, bounded and printable. Raises no Exception."""
    try:
        return _bounded(repr(value))
    except Exception as error:
        return f"<{_type(value)}: its __repr__ raises {type(error).__name__}>"


@attrs.define
class _Conversion:
    """One conversion, and how many values it may still take in: nesting multiplies them."""

    left: int = _VALUES

    def convert(self, value: Any, depth: int) -> Plain:
        self.left -= 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return _bounded(str.__str__(value))
        if isinstance(value, int):
            bits = int.bit_length(value)
            return int(value) if bits <= _INTEGER_BITS else f"<integer of {bits} bits>"
        if isinstance(value, float):
            number = float(value)
            return number if math.isfinite(number) else str(number)
        if isinstance(value, Mapping):
            return self._mapping(value, depth - 1) if depth and self.left > 0 else "..."
        if isinstance(value, (list, tuple, set, frozenset)):
            return self._items(value, depth - 1) if depth and self.left > 0 else "..."
        return _other(value)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Plain:
        made = {_key(k): self.read(v, depth) for k, v in islice(value.items(), _ITEMS)}
        if len(value) > _ITEMS:
            made["..."] = f"{len(value) - _ITEMS} more"
        return made

    def _items(self, value: Collection[Any], depth: int) -> Plain:
        made = [self.read(each, depth) for each in islice(value, _ITEMS)]
        if len(value) > _ITEMS:
            made.append(f"... {len(value) - _ITEMS} more")
        return made

    def read(self, value: Any, depth: int) -> Plain:
        try:
            return self.convert(value, depth)
        except Exception as error:
            return _unread(value, error)


def _key(value: Any) -> str:
    return _bounded(str.__str__(value)) if isinstance(value, str) else shown(value)


def _other(value: Any) -> Plain:
    shape, dtype = (getattr(value, name, None) for name in ("shape", "dtype"))
    if shape is None or dtype is None:
        return shown(value)
    if type(value).__module__ == "numpy" and shape == ():
        return plain(value.item())  # a scalar
    return f"<{_type(value)} of shape {tuple(shape)}, {dtype}>"


def _unread(value: Any, error: Exception) -> str:
    return f"<{_type(value)}: {type(error).__name__} when it was read>"


def _type(value: Any) -> str:
    return type(value).__qualname__


def _bounded(string: str) -> str:
    if len(string) > _CHARACTERS:
        string = f"{string[:_CHARACTERS]}... ({len(string)} characters)"
    # A lone surrogate cannot be written to a file or a terminal.
    return string.encode("utf-8", "backslashreplace").decode()
