"""A replacement takes every call that the original takes, or is told what it lacks."""

import ast
import functools
import inspect

import pytest

from turbo_physai.evidence.signatures import contract, mismatch, of_definition, of_object

FITS = [
    ("(x)", "(x)"),
    ("(x)", "(x, y=1)"),
    ("(x, y=2)", "(x, y=3, *, z=1)"),
    ("(x)", "(*args, **kwargs)"),
    ("(x, /)", "(other)"),
    ("(x, /)", "(*args)"),
    ("(*, k)", "(k)"),
    ("(*, k=1)", "(**kwargs)"),
    ("(*args, **kwargs)", "(*a, **k)"),
]
CLASHES = [
    ("(x, y)", "(x)", "takes no 'y'"),
    ("(x)", "(y)", "calls 'x' 'y'"),
    ("(x)", "(x, /)", "calls 'x' 'x'"),
    ("(x)", "(*args)", "takes no 'x'"),
    ("(x=1)", "(x)", "has no default for 'x'"),
    ("(x)", "(x, y)", "also needs 'y'"),
    ("(x)", "(x, *, y)", "also needs 'y'"),
    ("(*args)", "(x=1)", "takes no *args"),
    ("(**kwargs)", "()", "takes no **kwargs"),
    ("(*, k)", "(j=1)", "takes no 'k'"),
    ("(*, k=1)", "(*, k)", "has no default for 'k'"),
]


def signature(text):
    return of_definition(ast.parse(f"def f{text}: ...").body[0])


@pytest.mark.parametrize(("original", "replacement"), FITS)
def test_it_fits(original, replacement):
    assert mismatch(signature(original), signature(replacement)) is None


@pytest.mark.parametrize(("original", "replacement", "reason"), CLASHES)
def test_it_does_not_fit(original, replacement, reason):
    assert mismatch(signature(original), signature(replacement)) == reason


def test_nobody_calls_the_first_parameter_of_a_method_by_name():
    assert mismatch(signature("(self, x)"), signature("(this, x)"), method=True) is None
    assert mismatch(signature("(self, x)"), signature("(this, x)")) is not None


def test_a_definition_and_its_object_have_one_signature():
    text = "(a, /, b=1, *c, d, e=2, **f)"
    made = {}
    exec(f"def f{text}: ...", made)
    read, live = signature(text), of_object(made["f"])
    assert [(p.name, p.kind) for p in read.parameters.values()] == [
        (p.name, p.kind) for p in live.parameters.values()
    ]
    assert mismatch(read, live) is None
    assert mismatch(live, read) is None


def test_a_decorator_that_hides_the_arguments_is_looked_through_for_the_original_alone():
    def plain(x, y): ...

    @functools.wraps(plain)
    def decorated(*args, **kwargs): ...

    assert str(contract(decorated)) == "(x, y)"
    assert str(of_object(decorated)) == "(*args, **kwargs)"
    assert inspect.signature(decorated) == contract(decorated)
