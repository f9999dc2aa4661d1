"""A RuntimeConfig is read with every fault at once, and changes an environment."""

import pytest

from turbo_physai.config.runtime import load_runtime, select_runtime
from turbo_physai.errors import OptimizationConfigError, OptimizationConfigNotFoundError

HEAD = "schema_version: turbophysai/runtime-config/v1\nkind: RuntimeConfig\n"


@pytest.fixture
def load(tmp_path):
    def load(text):
        file = tmp_path / "runtime.yaml"
        file.write_text(text)
        return load_runtime(file)

    return load


def test_values_that_are_no_texts_become_those_that_are_written(load):
    config = load(
        HEAD + "environment: {unset: [A], set: {B: 010, C: yes, D: 1e3, E: '', F: 2_0}}\n"
    )
    assert config.set == {"B": "010", "C": "yes", "D": "1e3", "E": "", "F": "2_0"}
    environment = {"A": "1", "B": "1", "Z": "1"}
    config.apply(environment)
    assert environment == {**config.set, "Z": "1"}


def test_everything_but_the_kind_may_be_left_out(load):
    config = load(HEAD)
    assert (config.unset, config.set, config.numa) == ((), {}, False)
    assert load(HEAD + "process: {numa: true}\n").numa


def test_every_fault_is_named_with_its_line_and_key(load):
    with pytest.raises(OptimizationConfigError) as error:
        load(
            "schema_version: v2\nkind: RuntimeConfig\nnew: 1\nenvironment:\n"
            "  unset: [A=B, 1]\n  set: {C: null, D: [1], C: 2}\nprocess: {numa: 'yes'}\n"
        )
    faults = {(fault.line, fault.key) for fault in error.value.faults}
    assert faults == {
        (1, "schema_version"),
        (3, "new"),
        (5, "environment.unset[0]"),
        (5, "environment.unset[1]"),
        (6, "environment.set.C"),
        (6, "environment.set.D"),
        (7, "process.numa"),
    }


def test_a_name_is_set_or_unset(load):
    with pytest.raises(OptimizationConfigError, match=r"set\.A: found both"):
        load(HEAD + "environment: {unset: [A], set: {A: 1}}\n")


@pytest.mark.parametrize("model", ["common", "BEVFormer", "bevformer"])
def test_a_model_may_have_a_packaged_one(model):
    path = select_runtime(model=model)
    assert path.name == "runtime.yaml"
    load_runtime(path)


def test_a_path_wins_over_the_model(tmp_path, monkeypatch):
    (tmp_path / "own.yaml").write_text(HEAD)
    monkeypatch.chdir(tmp_path)
    assert select_runtime("own.yaml", "common") == tmp_path / "own.yaml"
    assert select_runtime() is None


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(OptimizationConfigNotFoundError, match=f"found a folder at {tmp_path}"):
        select_runtime(tmp_path)
    with pytest.raises(OptimizationConfigNotFoundError, match="model: found 'other'"):
        select_runtime(model="other")
