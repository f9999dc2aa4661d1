"""The report names both sides of a change by their own names, files and lines: what the model had,
and what the author of the Group wrote."""

import pytest

DECORATORS = """\
import functools
def keeping(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        return f(*args, **kwargs)
    return inner
def hiding(f):
    def inner(*args, **kwargs):
        return f(*args, **kwargs)
    return inner
"""
OPS = """\
import decorators
from decorators import keeping, hiding
def plain(x): return 'old'
@keeping
def kept(x): return 'old'
@hiding
def hidden(x): return 'old'
class C:
    def method(self, x): return 'old'
    @property
    def prop(self): return 'old'
"""
FAST = """\
def f(x): return 'new'
def method(self, x): return 'new'
def make(original, options):
    def made(*args, **kwargs):
        return original(*args, **kwargs)
    return made
def yes(*args): return True
@property
def prop(self): return 'new'
"""
CASES = {
    "function": ("replace('model.ops.plain', 'fast.f')", "plain:3", "f:1"),
    "condition": (
        "replace('model.ops.plain', 'fast.f', runtime_condition='fast.yes')",
        "plain:3",
        "f:1",
    ),
    "wrapped": ("wrap('model.ops.plain', 'fast.make')", "plain:3", "make:3"),
    "decorated": ("replace('model.ops.kept', 'fast.f')", "kept:4", "f:1"),
    "decorated without wraps": ("wrap('model.ops.hidden', 'fast.make')", "hidden:6", "make:3"),
    "method": ("replace('model.ops.C.method', 'fast.method')", "C.method:9", "method:2"),
    "property": ("replace('model.ops.C.prop', 'fast.prop')", "C.prop:10", "prop:8"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_replacement_and_its_original_are_named_as_they_were_written(project, case):
    declared, old, new = CASES[case]
    project.write({"model/ops.py": OPS, "decorators.py": DECORATORS, "fast.py": FAST})
    project.declare(f"group('g', {declared})")
    text = project.run("""
        report = apply()
        import model.ops
        member, = report.execution["g"].members
        for side in (member.original, member.replacement):
            print(side.name, side.file, side.line)
        print(report)
    """)
    first, second, *rest = text.splitlines()
    for line, expected, module in ((first, old, "model.ops"), (second, new, "fast")):
        name, number = expected.split(":")
        file = project.path / f"{module.replace('.', '/')}.py"
        assert line == f"{module}.{name} {file} {number}"
    by = "wrapped by " if declared.startswith("wrap") else ""
    name, number = new.split(":")
    shown = f" -> {by}fast.{name} ({project.path}/fast.py:{number})"
    assert any(line.endswith(shown) for line in rest), rest


def test_an_original_that_somebody_else_had_changed_is_named_as_it_is(project):
    project.write({"model/ops.py": OPS, "decorators.py": DECORATORS, "fast.py": FAST})
    project.write({"third.py": "def other(x): return 'third'\n"})
    project.declare("group('g', replace('model.ops.plain', 'fast.f'))")
    project.run("""
        import model.ops, third
        model.ops.plain = third.other
        report = apply()
        assert report.execution["g"].members[0].original.name == "third.other"
    """)


def test_an_original_without_source_has_a_name(project):
    project.write({"fast.py": "def sin(x, /): return 'new'\n"})
    project.declare("group('g', replace('math.sin', 'fast.sin'))")
    project.run("""
        report = apply()
        import math
        assert str(report.execution["g"].members[0].original) == "math.sin"
    """)


IMPORTS = {
    "replace_import('old', 'fast')": "fast ({path}/fast.py)",
    "optional_import('absent', 'fast')": "fast ({path}/fast.py)",
    "optional_import('absent')": "an empty stand-in module",
    "import_alias('old', 'fast.f', 'alias')": "fast.f ({path}/fast.py:1)",
    "inject('old', 'name', 'fast.f')": "fast.f ({path}/fast.py:1)",
    "during_import('old', 'textwrap.dedent', 'fast.make')": "fast.make ({path}/fast.py:3)",
}


@pytest.mark.parametrize("declared", IMPORTS)
def test_an_import_declaration_names_what_it_brings_in(project, declared):
    project.write({"old.py": "", "fast.py": FAST}).declare(f"group('g', {declared})")
    text = project.run("""
        report = apply()
        try:
            import old, absent
        except ModuleNotFoundError:
            pass
        print(report)
    """)
    assert f"    - {IMPORTS[declared].format(path=project.path)}" in text.splitlines()
    assert "None" not in text
