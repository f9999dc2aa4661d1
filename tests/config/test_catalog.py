"""A config builds on others: what it states wins, what it leaves open is inherited."""

import textwrap

import pytest

from turbo_physai import OptimizationConfigCatalog, OptimizationConfigError
from turbo_physai.config import load


@pytest.fixture
def write(tmp_path):
    def write(id_, body=""):
        file = tmp_path / f"{id_}.yaml"
        head = f"""\
            schema_version: turbophysai/optimization-config/v1
            kind: OptimizationConfig
            metadata: {{id: {id_}, version: "1"}}
        """
        file.write_text(textwrap.dedent(head) + textwrap.dedent(body))
        return file

    return write


def test_stated_fields_win_and_open_ones_are_inherited(write):
    base = write(
        "base",
        """\
        optimization_modules: [one]
        compatibility: {allow_dirty: false, backend: [cuda]}
        optimization_groups:
          - {id: a, options: {x: 1}, trust: {ast_hashes: {t: ["ast-v1:0"]}}}
          - {id: b}
        """,
    )
    child = write(
        "child",
        """\
        extends: [base]
        optimization_modules: [two, one]
        compatibility: {backend: [cpu]}
        optimization_groups:
          - {id: c}
          - {id: a, enabled: false}
        """,
    )
    config = OptimizationConfigCatalog([base]).resolve(load(child))
    assert [entry.id for entry in config.groups] == ["a", "b", "c"]
    assert config.optimization_modules == ("one", "two")
    assert config.compatibility.allow_dirty is False
    assert config.compatibility.backend == ("cpu",)
    assert config.groups[0].enabled is False
    assert config.groups[0].options == {"x": 1}
    assert config.groups[0].trust.ast_hashes == {"t": ("ast-v1:0",)}


def test_of_several_parents_the_last_wins(write):
    parents = [
        write(name, f"optimization_groups: [{{id: a, options: {{from: {name}}}}}]\n")
        for name in ("one", "two")
    ]
    child = write("child", "extends: [one, two]\n")
    config = OptimizationConfigCatalog(parents).resolve(load(child))
    assert config.groups[0].options == {"from": "two"}


def test_an_unknown_parent_names_the_known_ones(write):
    child = write("child", "extends: [nobody]\n")
    with pytest.raises(OptimizationConfigError, match=r"extends\[0\]: found 'nobody'.*: base"):
        OptimizationConfigCatalog([write("base")]).resolve(load(child))


def test_a_circle_is_an_error(write):
    paths = [write("one", "extends: [two]\n"), write("two", "extends: [one]\n")]
    with pytest.raises(OptimizationConfigError, match="a circle: one -> two -> one"):
        OptimizationConfigCatalog(paths).resolve(load(paths[0]))


def test_two_files_with_one_id_are_an_error(write, tmp_path):
    one = write("one")
    other = tmp_path / "other.yaml"
    other.write_text(one.read_text())
    with pytest.raises(OptimizationConfigError, match=r"metadata.id: found 'one'"):
        _ = OptimizationConfigCatalog([one, other]).ids
