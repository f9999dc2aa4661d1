"""Where an object is defined is read from source, and what the source hides is called unknown."""

import textwrap

import pytest

from turbo_physai.evidence.definitions import Definition, Missing, Reexport, Unknown, find

SOURCE = textwrap.dedent("""\
    from __future__ import annotations
    import os
    from .sibling import borrowed as lent, other
    from pkg.far import thing
    from ... import beyond

    @decorator
    @another(1)
    def decorated(x):
        return x

    def twice(): return 1
    def twice(): return 2

    if TYPE_CHECKING:
        def twice(): ...

    if os.name == "nt":
        def sometimes(): ...

    def overruled(): ...
    try:
        from fast import overruled
    except ImportError:
        pass

    with context():
        def within(): ...

    value = 3

    class Model(Base):
        class Inner:
            async def run(self): ...

        @property
        def size(self): return 1

        @size.setter
        def size(self, new): ...

        @staticmethod
        def static(): ...

        @functools.cached_property
        def cached(self): ...

    @register
    class Decorated:
        def method(self): ...

    class Plain:
        pass
""")


def look(*names, source=SOURCE):
    return find(source, names, module="pkg.mod", is_package=False)


@pytest.mark.parametrize(
    ("names", "kind", "line"),
    [
        (["decorated"], "function", 7),
        (["twice"], "function", 13),
        (["within"], "function", 28),
        (["Model"], "class", 32),
        (["Model", "Inner", "run"], "method", 34),
        (["Model", "size"], "property", 36),
        (["Model", "static"], "staticmethod", 42),
        (["Model", "cached"], "cached_property", 45),
        (["Decorated", "method"], "method", 50),
    ],
)
def test_a_definition_has_a_kind_and_a_first_line(names, kind, line):
    found = look(*names)
    assert isinstance(found, Definition)
    assert (found.kind, found.line) == (kind, line)
    assert found.segments[0].splitlines()[0] == SOURCE.splitlines()[line - 1]


def test_a_property_is_all_of_its_accessors():
    assert len(look("Model", "size").nodes) == 2


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("lent", Reexport("pkg.sibling", "borrowed")),
        ("thing", Reexport("pkg.far", "thing")),
    ],
)
def test_an_imported_name_leads_to_where_it_comes_from(name, found):
    assert look(name) == found


def test_a_relative_import_of_a_package_starts_at_the_package():
    found = find("from . import a", ["a"], module="pkg.sub", is_package=True)
    assert found == Reexport("pkg.sub", "a")


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["sometimes"], "conditionally"),
        (["overruled"], "conditionally"),
        (["value"], "assigned in line 30"),
        (["Model", "missing"], "inherited"),
        (["Decorated", "missing"], "from a decorator of Decorated"),
        (["beyond"], "beyond the top package"),
        (["thing", "method"], "imported from pkg.far"),
    ],
)
def test_what_the_source_does_not_tell_is_unknown(names, reason):
    found = look(*names)
    assert isinstance(found, Unknown)
    assert reason in found.reason


@pytest.mark.parametrize(
    "extra", ["from far import *", "globals()['f'] = 1", "def __getattr__(n): ..."]
)
def test_a_name_that_may_come_from_elsewhere_is_unknown(extra):
    assert isinstance(look("f", source=extra), Unknown)


@pytest.mark.parametrize("names", [["nothing"], ["Plain", "nothing"]])
def test_a_name_that_is_nowhere_is_missing(names):
    found = look(*names)
    assert isinstance(found, Missing)
    assert "'nothing'" in found.reason
