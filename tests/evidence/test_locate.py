"""A module's file is found without importing it or its parents."""

import sys

import pytest

from turbo_physai.evidence import locate


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for name, text in {
        "tp_pkg/__init__.py": "raise SystemExit('imported')",
        "tp_pkg/mod.py": "x = 'é'",
        "tp_pkg/deep/__init__.py": "",
        "tp_pkg/deep/leaf.py": "",
        "tp_space/leaf.py": "",
        "tp_pkg/space/leaf.py": "",
        "tp_pkg/space/pkg/__init__.py": "",
        "tp_space/inner/leaf.py": "",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "tp_pkg",
        "tp_pkg.mod",
        "tp_pkg.deep.leaf",
        "tp_space.leaf",
        "tp_space.inner.leaf",
        "tp_pkg.space.leaf",
        "tp_pkg.space.pkg",
    ],
)
def test_a_module_is_found_and_nothing_imported(tree, name):
    spec = locate.locate(name)
    assert spec is not None
    assert spec.origin.startswith(str(tree))
    assert locate.kind(spec) == "source"
    assert not any(loaded.startswith("tp_") for loaded in sys.modules)


@pytest.mark.parametrize(
    "name", ["tp_absent", "tp_pkg.absent", "tp_pkg.mod.deeper", "tp_absent.mod"]
)
def test_what_is_not_there_is_not_found(tree, name):
    assert locate.locate(name) is None


def test_a_namespace_package_is_told_apart(tree):
    for name in ("tp_space", "tp_space.inner", "tp_pkg.space"):
        assert locate.kind(locate.locate(name)) == "namespace"


def test_the_source_is_decoded_as_python_does(tree):
    assert locate.source(locate.locate("tp_pkg.mod")) == "x = 'é'"


def test_a_loaded_module_says_itself_where_it_comes_from():
    assert locate.locate("pytest") is pytest.__spec__


def test_extension_modules_and_builtins_have_no_source():
    extension = locate.locate("_ctypes")
    assert locate.kind(extension) in ("extension", "other")  # some builds compile it in
    assert locate.kind(locate.locate("sys")) == "other"
