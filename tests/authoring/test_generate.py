"""Trust is made from a recipe and a checkout, and a delivered config is what its recipe makes."""

import subprocess
from pathlib import Path
from typing import Any

import attrs
import pytest

from turbo_physai import OptimizationConfigError, Registry, group, inject, replace
from turbo_physai.authoring.generate import generate
from turbo_physai.config import load
from turbo_physai.plan import collect

ROOT = Path(__file__).parents[2]
RECIPE = """\
schema_version: turbophysai/optimization-config/v1
kind: OptimizationConfig
metadata: {id: test, version: "1.0"}
optimization_groups:
  - id: g
    options: {a: [1, two, null]}
"""


@attrs.frozen
class Options:
    a: list[Any] = attrs.Factory(list)


REGISTRY = Registry([group("g", replace("tp_model.ops.f", "fast.f"), options=Options)])


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "tp_model").mkdir()
    (tmp_path / "tp_model" / "__init__.py").touch()
    (tmp_path / "tp_model" / "ops.py").write_text("def f(x):\n    return x\n")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_what_is_made_is_a_config_with_both_hashes_of_every_target(checkout):
    made = checkout / "optimization.yaml"
    made.write_text(generate(checkout / "recipe.yaml", checkout, REGISTRY))
    config = load(made)
    (entry,) = config.groups
    assert config.version == "1.0"
    assert entry.options == {"a": [1, "two", None]}
    assert list(entry.trust.source_hashes) == list(entry.trust.ast_hashes) == ["tp_model.ops.f"]


def test_an_entry_of_a_group_that_changes_imports_stays_without_hashes(checkout):
    registry = Registry([group("g", inject("tp_model.ops", "name", "fast.f"), options=Options)])
    assert "trust" not in generate(checkout / "recipe.yaml", checkout, registry)


def test_a_target_that_is_not_in_the_checkout_is_an_error(checkout):
    (checkout / "tp_model" / "ops.py").write_text("def g(x): ...\n")
    with pytest.raises(
        OptimizationConfigError, match=r"tp_model\.ops\.f: found the module has no 'f'"
    ):
        generate(checkout / "recipe.yaml", checkout, REGISTRY)


def test_a_stated_commit_must_be_checked_out_and_clean(checkout):
    git(checkout, "init", "-q")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "model")
    commit = git(checkout, "rev-parse", "HEAD")
    recipe = checkout / "recipe.yaml"
    recipe.write_text(RECIPE + f"compatibility: {{commits: ['{commit}']}}\n")
    git(checkout, "update-index", "--assume-unchanged", "recipe.yaml")
    assert "source-v1:" in generate(recipe, checkout, REGISTRY)

    (checkout / "tp_model" / "ops.py").write_text("def f(x): ...\n")
    with pytest.raises(
        OptimizationConfigError, match="dirty: found changed files; accepted: clean"
    ):
        generate(recipe, checkout, REGISTRY)

    recipe.write_text(RECIPE + "compatibility: {commits: ['0123']}\n")
    with pytest.raises(OptimizationConfigError, match=f"commit: found {commit}; accepted: 0123"):
        generate(recipe, checkout, REGISTRY)


def test_the_examples_config_is_made_from_its_recipe_and_its_code():
    pytest.importorskip("turbo_physai.model_configs")
    folder = ROOT / "examples" / "bevformer"
    made = generate(folder / "recipe.yaml", folder)
    assert (folder / "optimization.yaml").read_text() == made


@pytest.mark.parametrize("name", ["bevformer", "common", "maptr", "uniad", "vad"])
def test_a_packaged_config_says_what_its_recipe_says(name):
    configs = pytest.importorskip("turbo_physai.model_configs")
    folder = Path(configs.__path__[0]) / name
    recipe, delivered = load(folder / "recipe.yaml"), load(folder / "optimization.yaml")
    assert [e.id for e in recipe.groups] == [e.id for e in delivered.groups]
    assert recipe.compatibility == delivered.compatibility
    assert recipe.optimization_modules == delivered.optimization_modules
    declared = collect(delivered, None)
    for entry in delivered.groups:
        assert (entry.trust is None) is declared[entry.id].changes_imports, entry.id
