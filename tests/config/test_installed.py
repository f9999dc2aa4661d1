"""Configs of installed packages are found by name, from their metadata alone."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest

from turbo_physai import OptimizationConfigNotFoundError
from turbo_physai.config import OptimizationConfigCatalog, load, select
from turbo_physai.config.installed import installed_configs
from turbo_physai.config.runtime import select_runtime
from turbo_physai.config.selection import packaged_configs
from turbo_physai.errors import OptimizationConfigError

HEAD = """\
schema_version: turbophysai/optimization-config/v1
kind: OptimizationConfig
metadata: {{id: {}, version: "1"}}
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts distributions where python looks: their entry points, and files of their packages."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("TURBO_PHYSAI_OPTIMIZATION_CONFIG", raising=False)

    def install(distribution, entry_points="", **files):
        folder = tmp_path / f"{distribution}-2.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {distribution}\nVersion: 2.0\n")
        stated = f"[turbo_physai.configs]\n{dedent(entry_points)}"
        (folder / "entry_points.txt").write_text(stated)
        for name, text in files.items():
            file = tmp_path / name.replace("__", "/").replace("_yaml", ".yaml")
            file.parent.mkdir(parents=True, exist_ok=True)
            (file.parent / "__init__.py").write_text("raise SystemExit('it was imported')\n")
            (file.parents[1] / "__init__.py").touch()
            file.write_text(text)
        return tmp_path

    return install


def test_a_package_ships_configs_by_name_and_none_of_it_is_imported(install):
    root = install(
        "swift-bev",
        "Sparse4D-v2 = swift.sparse4d\nother = swift.sparse4d:eval.yaml\n",
        swift__sparse4d__optimization_yaml=HEAD.format("a"),
        swift__sparse4d__eval_yaml=HEAD.format("b"),
        swift__sparse4d__runtime_yaml="",
    )
    folder = root / "swift/sparse4d"
    assert select(model="sparse4d_V2") == folder / "optimization.yaml"
    assert select(model="other") == folder / "eval.yaml"
    assert select_runtime(model="sparse4d-v2") == folder / "runtime.yaml"
    assert [tuple(each) for each in installed_configs() if each.origin == "swift-bev 2.0"] == [
        ("other", "swift.sparse4d:eval.yaml", "swift-bev 2.0"),
        ("sparse4d_v2", "swift.sparse4d", "swift-bev 2.0"),
    ]
    assert not [name for name in sys.modules if name.split(".")[0] == "swift"]


@pytest.mark.parametrize("name", ["sparse4d", "swift.sparse4d:optimization.yaml"])
def test_a_name_or_package_and_file_stand_wherever_a_path_does(install, monkeypatch, name):
    files = {"swift__sparse4d__optimization_yaml": HEAD.format("a")}
    root = install("swift", "sparse4d = swift.sparse4d\n", **files)
    file = root / "swift/sparse4d/optimization.yaml"
    assert select(name) == file
    monkeypatch.setenv("TURBO_PHYSAI_OPTIMIZATION_CONFIG", name)
    assert select() == file


def test_a_name_that_two_packages_have_is_an_error_that_names_both(install):
    install("one", "twice = a.b\n")
    install("two", "twice = c.d\n")
    both = r"one 2\.0 \(a\.b\) and two 2\.0 \(c\.d\).*package:file"
    with pytest.raises(OptimizationConfigNotFoundError, match=both):
        select(model="twice")


def test_a_packaged_name_is_never_anothers(install):
    install("one", "bevformer = a.b\n")
    assert select(model="bevformer") == packaged_configs()["bevformer"]


def test_an_unknown_name_shows_all_and_the_nearest(install):
    install("one", "sparse4d = a.b\n")
    found = r"found 'sparse4'; accepted: bevformer, .*sparse4d; did you mean 'sparse4d'\?"
    with pytest.raises(OptimizationConfigNotFoundError, match=found):
        select(model="sparse4")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("absent.x", "where 'absent' is no package that can be imported"),
        ("swift.absent", r"and no file .*swift/absent/optimization\.yaml"),
        ("swift.sparse4d:absent.yaml", r"and no file .*swift/sparse4d/absent\.yaml"),
    ],
)
def test_an_entry_point_without_a_file_says_whose_it_is(install, reference, message):
    install("swift", f"broken = {reference}\n", swift__sparse4d__optimization_yaml="")
    with pytest.raises(OptimizationConfigNotFoundError, match=f"broken of swift 2.0: .*{message}"):
        select(model="broken")


def test_a_config_extends_one_of_another_package(install, tmp_path):
    files = {"swift__base__optimization_yaml": HEAD.format("swift.base") + "model: {name: Swift}\n"}
    install("swift", "swift_base = swift.base\n", **files)
    own = tmp_path / "own.yaml"
    own.write_text(HEAD.format("own") + "extends: [common.base, swift.base]\n")
    assert OptimizationConfigCatalog.installed().resolve(load(own)).model_name == "Swift"
    with pytest.raises(OptimizationConfigError, match=r"'swift\.base'"):
        OptimizationConfigCatalog.packaged().resolve(load(own))


def test_two_packages_with_configs_of_one_id_are_an_error_that_names_both(install, tmp_path):
    install("one", "one = a.b\n", a__b__optimization_yaml=HEAD.format("same"))
    install("two", "two = c.d\n", c__d__optimization_yaml=HEAD.format("same"))
    own = tmp_path / "own.yaml"
    own.write_text(HEAD.format("own") + "extends: [same]\n")
    with pytest.raises(OptimizationConfigError, match=r"c/d/.*'same'.*a/b/"):
        OptimizationConfigCatalog.installed().resolve(load(own))
