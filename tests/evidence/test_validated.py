"""What has changed is named by the first line whose meaning differs."""

import pytest

from turbo_physai.config import Trust
from turbo_physai.evidence import hashes, validated
from turbo_physai.evidence.definitions import find

VALIDATED = """\
@decorated
def f(x, scale=2):
    "What it does."
    for i in range(3):
        if i:
            x += scale
        else:
            x = 0
    try:
        y = x
    except ValueError:
        y = 1
    return y
"""


def defined(source):
    return find(source, ("f",), module="m", is_package=False)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ("x += scale", "x -= scale", "line 6 is 'x -= scale', not 'x += scale'"),
        ("y = 1", "y = 2", "line 12 is 'y = 2', not 'y = 1'"),
        ("range(3)", "range(4)", "line 4 is 'for i in range(4):', not 'for i in range(3):'"),
        ("    return y\n", "    y = 3\n    return y\n", "line 13 is 'y = 3'"),
        ("            x = 0\n", "            pass\n", "line 8 is 'pass', not 'x = 0'"),
        ("    return y\n", "", "'return y' is missing"),
        ("scale=2", "scale=3", "line 1 is '@decorated'"),
        ("@decorated\n", "", "line 1 is 'def f(x, scale=2):', not '@decorated'"),
        ("x = 0", "x = 0  # none", ""),
        ("range(3)", "range( 3 )", ""),
    ],
)
def test_the_innermost_statement_that_differs_is_named(before, after, change):
    assert before in VALIDATED
    now = defined(VALIDATED.replace(before, after, 1))
    found = validated.first_change([VALIDATED.rstrip()], now)
    assert found.startswith(change) if change else found == ""


def test_lines_are_those_of_the_file():
    now = defined("import os\n\n\n" + VALIDATED.replace("y = 1", "y = 2"))
    assert validated.first_change([VALIDATED.rstrip()], now).startswith("line 15 is")


def test_a_source_is_read_back_only_if_a_hash_stands_for_it(tmp_path):
    config, found = tmp_path / "optimization.yaml", defined(VALIDATED)
    validated.beside(config).write_text(validated.as_text({"m.f": found}))
    source, tree = hashes.source_hash(found.segments), hashes.ast_hash(found.nodes)
    kept = [VALIDATED.rstrip()]
    assert validated.read(Trust({"m.f": (source,)}, file=config), "m.f") == kept
    assert validated.read(Trust({}, {"m.f": (tree,)}, file=config), "m.f") == kept
    assert validated.read(Trust({"m.f": ("source-v1:0",)}, file=config), "m.f") is None
    assert validated.read(Trust({"m.g": (source,)}, file=config), "m.g") is None
    assert validated.read(Trust({"m.f": (source,)}), "m.f") is None


@pytest.mark.parametrize("content", ["", "[]", "{", '{"m.f": 3}', '{"m.f": ["def"]}', "\xff"])
def test_a_damaged_file_is_as_none(tmp_path, content):
    config = tmp_path / "optimization.yaml"
    validated.beside(config).write_text(content, encoding="latin-1")
    trust = Trust({"m.f": ("source-v1:0",)}, {"m.f": ("ast-v1:0",)}, file=config)
    assert validated.read(trust, "m.f") is None
