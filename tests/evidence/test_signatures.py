"""A replacement takes every call that the original takes, or is told what it lacks."""

import ast
import functools
import inspect
import itertools
from inspect import Parameter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    ("(x, y)", "(x)", "has no parameter `y`, which callers may pass. Add it"),
    (
        "(x, values)",
        "(x, v)",
        "names parameter 2 `v`; callers may pass it as `values=`. Rename it to `values`",
    ),
    (
        "(x)",
        "(x, /)",
        "takes `x` by position only; callers may pass it as `x=`. Remove the `/` after it",
    ),
    ("(x)", "(*args)", "has no parameter `x`, which callers may pass. Add it"),
    ("(x)", "(*args, x=1, **k)", "has no parameter `x`, which callers may pass. Add it"),
    ("(x=1)", "(x)", "requires `x`, which is optional in the original. Give it a default"),
    ("(x)", "(x, y)", "requires `y`, which the original does not take. Give it a default"),
    ("(x)", "(x, *, y)", "requires `y`, which the original does not take. Give it a default"),
    (
        "(*args, k=1)",
        "(k=1, *args)",
        "takes `k` by position, where callers pass another argument. Make it keyword-only",
    ),
    ("(*args)", "(x=1)", "takes no `*args`. Add it"),
    ("(**kwargs)", "()", "takes no `**kwargs`. Add it"),
    ("(*, k)", "(j=1)", "has no parameter `k`, which callers may pass. Add it"),
    ("(*, k=1)", "(*, k)", "requires `k`, which is optional in the original. Give it a default"),
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


@st.composite
def signatures(draw):
    kinds = [Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY]
    names = draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=4))
    chosen = sorted((draw(st.sampled_from(kinds)), name) for name in names)
    parameters, has_default = [], False
    for kind, name in chosen:
        keyword = kind is Parameter.KEYWORD_ONLY
        default = draw(st.booleans()) or (has_default and not keyword)
        has_default = default
        parameters.append(Parameter(name, kind, default=1 if default else Parameter.empty))
    if draw(st.booleans()):
        parameters.append(Parameter("args", Parameter.VAR_POSITIONAL))
    if draw(st.booleans()):
        parameters.append(Parameter("kwargs", Parameter.VAR_KEYWORD))
    return inspect.Signature(sorted(parameters, key=lambda p: p.kind))


def takes(function, positional, names):
    # Not Signature.bind, which some Pythons let refuse a keyword that **kwargs take.
    try:
        function(*range(positional), **dict.fromkeys(names))
    except TypeError:
        return False
    return True


def function(signature):
    made = {}
    exec(f"def f{signature}: ...", made)
    return made["f"]


CALLS = [
    (positional, names)
    for positional in range(6)
    for size in range(5)
    for names in itertools.combinations("abcd", size)
]


@given(signatures(), signatures())
@settings(deadline=None, max_examples=300)
def test_what_is_accepted_takes_every_call_that_the_original_takes(original, replacement):
    """But for a name that only the original's **kwargs take: any replacement may have it too."""
    if mismatch(original, replacement) is None:
        old, new = function(original), function(replacement)
        by_name = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        named = {p.name for p in original.parameters.values() if p.kind in by_name}
        for positional, names in CALLS:
            if named.issuperset(names) and takes(old, positional, names):
                assert takes(new, positional, names), (positional, names)
