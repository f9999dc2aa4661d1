"""Options have names, types and defaults; a schema that is none is refused when it is declared."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Optional

import attrs
import pytest
from attrs import validators

from turbo_physai import NoOptions, group, option, replace
from turbo_physai.declarations.options import options_of, resolve

ONE = replace("pkg.mod.f", "fast.f")


@attrs.frozen
class Options:
    on: bool = option(False, help="whether")
    count: int = 3
    factor: float = attrs.field(default=2, metadata={"help": "by how much"})
    name: str = "a"
    mode: Literal["fork", "spawn", 1] | None = "fork"
    limit: Optional[float] = None  # noqa: UP045 - both spellings
    sizes: tuple[int, ...] = (1, 2)
    names: list[str] | list[int] = attrs.Factory(list)
    more: dict[str, Any] = attrs.Factory(dict)
    ahead: int | None = option(None, validator=validators.optional(validators.ge(1)))
    anything: Any = None


def faults(given, schema=Options):
    made, found = resolve(schema, given)
    assert made is None
    return [(each.key, each.found, each.accepted) for each in found]


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"on": True}, True),
        ({"count": -1}, -1),
        ({"factor": 3}, 3.0),
        ({"factor": 0.5}, 0.5),
        ({"name": ""}, ""),
        ({"mode": None}, None),
        ({"mode": 1}, 1),
        ({"limit": 1}, 1.0),
        ({"sizes": [3]}, (3,)),
        ({"names": ["a"]}, ["a"]),
        ({"names": [1]}, [1]),
        ({"more": {"a": {"b": [None]}}}, {"a": {"b": [None]}}),
        ({"ahead": 1}, 1),
        ({"anything": [1, "a"]}, [1, "a"]),
    ],
)
def test_a_value_becomes_what_the_annotation_says(given, value):
    made, found = resolve(Options, given)
    assert not found
    (name,) = given
    assert getattr(made, name) == value
    assert type(getattr(made, name)) is type(value)


def test_what_is_not_given_has_its_default_in_the_type_that_is_declared():
    made, _ = resolve(Options, {})
    assert made == Options()
    assert type(made.factor) is float
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made.count = 4


MODE = '"fork" | "spawn" | 1 | null'
YAML_BOOL = " (YAML reads on, off, yes and no as bool: put them in quotes)"


@pytest.mark.parametrize(
    ("given", "key", "found", "accepted"),
    [
        ({"on": "true"}, "on", '"true" (str)', "bool (true or false, without quotes)"),
        ({"on": 1}, "on", "1 (int)", "bool (true or false, without quotes)"),
        ({"count": True}, "count", "true (bool)", "int"),
        ({"count": 1.0}, "count", "1.0 (float)", "int"),
        ({"count": "3"}, "count", '"3" (str)', "int (written as 3)"),
        ({"count": "1" * 400}, "count", f'"{"1" * 79}… (str)', "int"),
        ({"count": None}, "count", "null", "int"),
        ({"factor": True}, "factor", "true (bool)", "float"),
        ({"factor": "1e-5"}, "factor", '"1e-5" (str)', "float (written as 1.0e-05)"),
        ({"factor": "much"}, "factor", '"much" (str)', "float"),
        ({"factor": float("nan")}, "factor", "NaN (float)", "float (finite)"),
        ({"factor": float("-inf")}, "factor", "-Infinity (float)", "float (finite)"),
        ({"factor": 10**309}, "factor", f"1{'0' * 79}… (int)", "float (finite)"),
        ({"name": 3}, "name", "3 (int)", "str (in quotes)"),
        ({"name": [1]}, "name", "a list", "str"),
        ({"mode": "frok"}, "mode", '"frok" (str)', f"{MODE}; did you mean 'fork'?"),
        ({"mode": True}, "mode", "true (bool)", MODE + YAML_BOOL),
        ({"mode": 2}, "mode", "2 (int)", MODE),
        ({"limit": "1e3"}, "limit", '"1e3" (str)', "float | null (written as 1000.0)"),
        ({"sizes": 3}, "sizes", "3 (int)", "list[int]"),
        ({"sizes": [1, "a"]}, "sizes[1]", '"a" (str)', "int"),
        ({"names": "a"}, "names", '"a" (str)', "list[str] | list[int]"),
        ({"more": [1]}, "more", "a list", "dict[str, any]"),
        ({"ahead": 0}, "ahead", "0 (int)", "int | null; 'ahead' must be >= 1: 0"),
        ({"ahead": True}, "ahead", "true (bool)", "int | null"),
    ],
)
def test_a_value_of_another_type_is_a_fault(given, key, found, accepted):
    assert faults(given) == [(key, found, accepted)]


def test_all_faults_are_found_at_once():
    given = {"facter": 1, "count": "x", "ahead": 0, "sizes": ["a", "b"]}
    keys = [key for key, *_ in faults(given)]
    assert keys == ["facter", "count", "sizes[0]", "sizes[1]", "ahead"]


def test_an_unknown_option_names_the_known_ones_and_the_nearest():
    ((key, found, accepted),) = faults({"Factr": 1})
    assert (key, found) == ("Factr", "an unknown option")
    assert accepted.startswith("on: bool, count: int, factor: float, ")
    assert accepted.endswith("; did you mean 'factor'?")
    assert "did you mean" not in faults({"xyz": 1})[0][2]
    assert faults({"x": 1}, NoOptions) == [("x", "an unknown option", "no options")]


def test_what_validators_say_is_a_fault():
    def smaller(instance, attribute, value):
        if value >= instance.high:
            raise TypeError("low is below high")

    def broken(instance, attribute, value):
        return value[0]

    @attrs.frozen
    class Range:
        low: int = option(0, validator=smaller)
        high: int = 9
        kind: str = option("a", validator=validators.in_(["a", "b"]))
        text: str = option("a", validator=broken)

    assert resolve(Range, {"low": 3, "high": 4}) == (Range(3, 4), [])
    assert faults({"low": 3, "high": 2, "kind": "c", "text": ""}, Range) == [
        ("low", "3 (int)", "int; low is below high"),
        ("kind", '"c" (str)', "str; 'kind' must be in ['a', 'b'] (got 'c')"),
        ("text", '"" (str)', "str; IndexError: string index out of range"),
    ]
    # It is told of with the option that it belongs to, which the config does not state here.
    assert faults({"high": 0}, Range) == [
        ("", "high: 0 (int)", "options that fit: low is below high")
    ]


def test_what_the_class_itself_refuses_is_a_fault_of_all_options():
    @attrs.frozen
    class Either:
        one: int | None = None
        other: int | None = None

        def __attrs_post_init__(self):
            if self.one is not None and self.other is not None:
                raise ValueError("either one or other")

    found = "one: 1 (int), other: 2 (int)"
    assert faults({"one": 1, "other": 2}, Either) == [
        ("", found, "options that fit: either one or other")
    ]


def test_what_tools_show_stands_in_the_fields():
    shown = {each.name: (each.kind.name, each.default, each.help) for each in options_of(Options)}
    assert shown["on"] == ("bool", False, "whether")
    assert shown["factor"] == ("float", 2, "by how much")
    assert shown["mode"] == (MODE, "fork", "")
    assert shown["sizes"] == ("list[int]", (1, 2), "")


def test_a_group_has_the_options_of_its_schema():
    assert group("g", ONE, options=Options).options is Options
    assert group("g", ONE).options is NoOptions
    assert group("g", ONE, options=Options) != group("g", ONE)


@attrs.frozen
class Inherits(Options):
    more_names: str = "b"


def test_a_schema_may_inherit_fields_and_have_class_variables():
    @attrs.frozen
    class Child(Inherits):
        KNOWN: ClassVar[tuple[str, ...]] = ("a",)

    assert [each.name for each in options_of(Child)][-2:] == ["anything", "more_names"]


class Undecorated(Options):
    lost: int = 3


@attrs.define
class Mutable:
    a: int = 1


@dataclass(frozen=True)
class Data:
    a: int = 1


@attrs.frozen
class NoDefault:
    a: int
    b: str = ""


@attrs.frozen
class Unsupported:
    a: set[int] = frozenset()
    b: tuple[int, int] = (1, 2)
    c: dict[int, str] = attrs.Factory(dict)
    d: "list" = attrs.Factory(list)
    e: list[complex] | None = None
    f: Literal[b"x"] = b"x"


@attrs.frozen
class Unresolved:
    a: "Nowhere" = None  # noqa: F821


@attrs.frozen
class Converted:
    a: str = attrs.field(default="", converter=str)
    b: int = attrs.field(default=1, init=False)
    _c: int = 1


@attrs.frozen
class WrongDefault:
    a: int = "1"
    b: float = float("inf")


@attrs.frozen
class RefusedDefault:
    a: int = option(0, validator=validators.ge(1))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"a": int}, "found {'a': <class 'int'>}; accepted: a class made by attrs.frozen"),
        (Options(), "accepted: a class made by attrs.frozen"),
        (None, "found None; accepted: a class made by attrs.frozen"),
        (Data, "accepted: a class made by attrs.frozen"),
        (Undecorated, "accepted: a class made by attrs.frozen"),
        (Mutable, "found Mutable, which is not frozen"),
        (NoDefault, "NoDefault.a: found no default"),
        (Unresolved, "annotations that cannot be evaluated (NameError: name 'Nowhere'"),
        (WrongDefault, 'WrongDefault.a: found the default "1" (str); accepted: int'),
        (WrongDefault, "WrongDefault.b: found the default Infinity (float)"),
        (RefusedDefault, "RefusedDefault refuses its own defaults: 'a' must be >= 1"),
        *((Unsupported, f"Unsupported.{name}: found ") for name in "abcdef"),
        (Converted, "Converted.a: found a converter"),
        (Converted, "Converted.b: found a field that is not set by its name"),
        (Converted, "Converted._c: found a field that is not set by its name"),
    ],
)
def test_a_malformed_schema_is_refused_when_it_is_declared(schema, said):
    with pytest.raises(TypeError) as caught:
        group("g", ONE, options=schema)
    assert str(caught.value).startswith("Group g: options: ")
    assert said in str(caught.value)
