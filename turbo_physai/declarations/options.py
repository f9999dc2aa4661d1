"""The options of a Group, declared as the fields of an attrs class.

A schema is a frozen attrs class, each field with an annotation that `option_types` knows, a
default, and a help text. The config states plain values; what factories and checks get is an
instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, get_type_hints

import attrs

from turbo_physai.declarations.option_types import Kind, described, fault, kind_of
from turbo_physai.errors import Fault, did_you_mean


@attrs.frozen
class NoOptions:
    """The options of a Group that declares none."""


class Option(NamedTuple):
    """One option of a Group."""

    name: str
    kind: Kind
    default: Any
    help: str


def option(
    default: Any,
    *,
    help: str = "",
    validator: Callable[[Any, attrs.Attribute[Any], Any], Any] | None = None,
) -> Any:
    """A field of a schema: `attrs.field` with the help text where tools look for it.

        @attrs.frozen
        class HeadOptions:
            factor: float = option(2.0, help="what the scores are multiplied by")

    Args:
        default: its value where a config states none.
        help: one line for those who write configs.
        validator: one of `attrs.validators`, or a function of (instance, attribute, value) that
            raises a ValueError or TypeError.
    """
    return attrs.field(default=default, validator=validator, metadata={"help": help})


def options_of(schema: type[Any]) -> tuple[Option, ...]:
    """The options that a schema declares.

    Raises:
        TypeError: it is no schema; the message names everything that is wrong with it.
    """
    # A class that only inherits from a decorated one has its fields, but none of its own.
    if not isinstance(schema, type) or "__attrs_attrs__" not in vars(schema):
        raise TypeError(f"found {schema!r}; accepted: a class made by attrs.frozen")
    return _declared(schema)  # type: ignore[arg-type]  # a class is hashable


@cache
def _declared(schema: type[Any]) -> tuple[Option, ...]:
    try:
        hints = get_type_hints(schema)
    except Exception as error:
        raise TypeError(
            f"{schema.__qualname__}: found annotations that cannot be evaluated "
            f"({type(error).__name__}: {error}); accepted: names that are there when the class "
            "is declared"
        ) from None
    fields = attrs.fields(schema)
    faults = [
        f"{schema.__qualname__}.{field.name}: {fault}"
        for field in fields
        if (fault := _fault(field, hints)) is not None
    ]
    if faults:
        raise TypeError("; ".join(faults))
    try:
        defaults = schema()
    except Exception as error:
        raise TypeError(f"{schema.__qualname__} refuses its own defaults: {_said(error)}") from None
    declared = tuple(
        Option(
            field.name,
            kind_of(hints[field.name]),
            getattr(defaults, field.name),
            str(field.metadata.get("help", "")),
        )
        for field in fields
    )
    _require_frozen(defaults, declared)
    _require_defaults(schema, declared)
    return declared


def resolve(schema: type[Any], given: Mapping[str, Any]) -> tuple[Any, list[Fault]]:
    """The instance of a schema that plain values make; None, with everything that is wrong with
    them, where they make none. The key of a Fault is the path among the options, such as
    ``sizes[1]``; it is empty where the fault is of all of them together."""
    declared = options_of(schema)
    names = [each.name for each in declared]
    listed = ", ".join(f"{each.name}: {each.kind.name}" for each in declared) or "no options"
    faults = [
        Fault("", "an unknown option", listed + did_you_mean(name, names), name)
        for name in given
        if name not in names
    ]
    values = {}
    for each in declared:
        wrong: list[Fault] = []
        value = each.kind.read(given.get(each.name, each.default), each.name, wrong)
        values[each.name] = each.default if wrong else value
        faults += wrong
    faults += _refused(schema, declared, values, given)
    if faults:
        return None, faults
    try:
        return schema(**values), []
    except Exception as error:  # of __attrs_post_init__: options that do not fit together
        found = ", ".join(f"{name}: {described(value)}" for name, value in given.items())
        return None, [Fault("", found, f"options that fit: {_said(error)}")]


def _fault(field: attrs.Attribute[Any], hints: Mapping[str, Any]) -> str | None:
    if field.name not in hints:
        return "found no annotation; accepted: one that says the type"
    if field.default is attrs.NOTHING:
        return "found no default; accepted: a default, so that a config may leave it out"
    if not field.init or field.alias != field.name:
        return "found a field that is not set by its name; accepted: an argument of that name"
    if field.converter is not None:
        return "found a converter; accepted: values as the config states them"
    try:
        kind_of(hints[field.name])
    except TypeError as error:
        return str(error)
    return None


def _require_frozen(instance: Any, declared: tuple[Option, ...]) -> None:
    """One instance is handed to all factories and checks of a Group."""
    if not declared:
        return
    try:
        setattr(instance, declared[0].name, declared[0].default)
    except attrs.exceptions.FrozenInstanceError:
        return
    name = type(instance).__qualname__
    raise TypeError(f"found {name}, which is not frozen; accepted: a class made by attrs.frozen")


def _require_defaults(schema: type[Any], declared: tuple[Option, ...]) -> None:
    faults: list[Fault] = []
    for each in declared:
        each.kind.read(each.default, each.name, faults)
    if faults:
        named = (
            f"{each.key}: found the default {each.found}; accepted: {each.accepted}"
            for each in faults
        )
        raise TypeError("; ".join(f"{schema.__qualname__}.{each}" for each in named))


def _refused(
    schema: type[Any],
    declared: tuple[Option, ...],
    values: Mapping[str, Any],
    given: Mapping[str, Any],
) -> list[Fault]:
    """What the validators of the options that are given say, each asked, which no instance that
    the class makes itself would do."""
    instance = object.__new__(schema)
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    faults = []
    for each, field in zip(declared, attrs.fields(schema), strict=True):
        if each.name in given and field.validator is not None:
            value = values[each.name]
            try:
                field.validator(instance, field, value)
            except Exception as error:
                faults.append(fault(each.name, value, f"{each.kind.name}; {_said(error)}"))
    return faults


def _said(error: Exception) -> str:
    # Some of attrs' validators put what they compared behind the message.
    message = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
    known = isinstance(error, (TypeError, ValueError)) and message
    return message if known else f"{type(error).__name__}: {message}"
