"""A hash names the code it stands for: the same for equal code, another for any other."""

import textwrap

from turbo_physai.evidence import hashes
from turbo_physai.evidence.definitions import find

CODE = """
    @decorator(1)
    def f(a, /, b: int = 2, *rest, c, **more) -> str:
        "Doc."
        x = f"{a!r:>{b}} and {c}"  # comment
        return [i async for i in x if i] or (lambda: x)()
"""


def both(source, *names):
    found = find(textwrap.dedent(source), names, module="m", is_package=False)
    return hashes.source_hash(found.segments), hashes.ast_hash(found.nodes)


def test_formatting_and_comments_change_the_source_hash_alone():
    spaced = CODE.replace("# comment", "#  another").replace("b: int = 2", "b : int=2")
    plain, formatted = both(CODE, "f"), both(spaced, "f")
    assert plain[0] != formatted[0]
    assert plain[1] == formatted[1]


def test_indentation_and_place_do_not_matter():
    inside = "x = 1\nclass C:\n" + textwrap.indent(textwrap.dedent(CODE), "    ")
    assert both(inside, "C", "f") == both(CODE, "f")


def test_any_change_of_the_code_changes_both():
    for old, new in (
        ("2", "3"),
        ("x)()", "x)('')"),
        ("!r", "!s"),
        ("Doc.", "Doc"),
        ("decorator(1)", "decorator(2)"),
    ):
        changed = both(CODE.replace(old, new), "f")
        assert changed[0] != both(CODE, "f")[0]
        assert changed[1] != both(CODE, "f")[1]


def test_the_accessors_of_a_property_count():
    one = "class C:\n    @property\n    def p(self): return 1\n"
    two = one + "    @p.setter\n    def p(self, new): pass\n"
    assert both(one, "C", "p") != both(two, "C", "p")


def test_hashes_are_the_same_in_every_version_of_python():
    # Stored figures: a config delivered for one Python version must hold on all of them.
    assert both(CODE, "f") == (
        "source-v1:830cba9a89acb45c01a6cede958976154fd881ec9d7bad6ecf7024910a635a63",
        "ast-v1:394a265eaa8d30949dc0b6b973eac5161e3184beeb2282c6c5e141251e6bc818",
    )
    assert hashes.artifact_hash(b"") == (
        "artifact-v1:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )
