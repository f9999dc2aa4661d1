"""Declaring is writing down strings: it imports nothing, and refuses what can never work."""

import sys

import pytest

from turbo_physai import (
    Registry,
    during_import,
    group,
    import_alias,
    inject,
    optional_import,
    registry_override,
    replace,
    replace_import,
    wrap,
)
from turbo_physai.declarations.names import ObjectPath

ONE = replace("pkg.mod.f", "fast.f")


def test_declaring_imports_nothing():
    group("g", replace("no.such.module.f", "also.not.there.f"))
    assert "no" not in sys.modules
    assert "also" not in sys.modules


@pytest.mark.parametrize(
    "path", ["f", "", "pkg..f", "pkg.mod.1f", "a:b:c", "pkg.mod:", "pkg mod.f"]
)
def test_a_path_that_is_no_dotted_name_is_refused(path):
    with pytest.raises(ValueError, match="is a dotted name"):
        replace(path, "fast.f")
    with pytest.raises(ValueError, match="is a dotted name"):
        wrap("pkg.mod.f", path)


def test_a_plain_text_is_not_taken_for_a_sequence_of_texts():
    with pytest.raises(TypeError, match="aliases is a sequence of texts"):
        replace("pkg.mod.f", "fast.f", aliases="pkg.g")
    with pytest.raises(TypeError, match="depends_on is a sequence of texts"):
        group("g", ONE, depends_on="other")


def test_a_path_that_is_no_text_is_refused():
    with pytest.raises(TypeError, match=r"target is a text such as 'pkg.mod.name', found 3"):
        replace(3, "fast.f")


def test_a_group_has_members_and_a_proper_id():
    with pytest.raises(ValueError, match="has no members"):
        group("g")
    with pytest.raises(ValueError, match="found 'with space'"):
        group("with space", ONE)
    with pytest.raises(TypeError, match="is not a declaration"):
        group("g", "pkg.mod.f")


def test_one_group_changes_a_path_once():
    again = replace("pkg.mod:f", "fast.g")
    with pytest.raises(ValueError, match=r"Group g: changes pkg\.mod\.f more than once"):
        group("g", ONE, again)
    with pytest.raises(ValueError, match="more than once"):
        group("g", replace("pkg.mod.f", "fast.f", aliases=["pkg.mod.f"]))


def test_import_compatibility_forms_groups_of_its_own():
    declared = [
        replace_import("absent.mod", "ours"),
        import_alias("pkg", "pkg.mod.f", "g"),
        optional_import("absent"),
        optional_import("absent.part", "ours"),
        during_import("pkg.mod", "pkg.version", "fast.version"),
        registry_override("pkg.mod", "pkg.reg.REGISTRY", ["f"]),
        inject("pkg", "name", "fast.f"),
    ]
    assert group("g", *declared).changes_imports
    with pytest.raises(ValueError, match="Groups of their own"):
        group("g", ONE, declared[0])


def test_turbo_physai_is_no_target():
    with pytest.raises(ValueError, match="does not change itself"):
        replace("turbo_physai.api.apply", "fast.f")


def test_a_registry_holds_one_group_per_id():
    declared = group("g", ONE)
    registry = Registry([declared, group("g", ONE)])
    assert registry.ids == ("g",)
    assert registry["g"] == declared
    with pytest.raises(ValueError, match="two different Groups have the id 'g'"):
        registry.add(group("g", replace("pkg.mod.f", "fast.g")))
    with pytest.raises(TypeError, match="a Registry holds Groups"):
        registry.add(ONE)


@pytest.mark.parametrize(
    ("text", "modules", "names"),
    [
        ("a.b.c.d", ("a.b.c", "a.b", "a"), ("c", "d")),
        ("a.b:c.d", ("a.b",), ("c", "d")),
        ("a:b", ("a",), ("b",)),
    ],
)
def test_a_path_names_the_modules_that_may_hold_the_object(text, modules, names):
    path = ObjectPath(text)
    assert path.modules == modules
    assert path.names_in(modules[0] if ":" in text else "a.b") == names
