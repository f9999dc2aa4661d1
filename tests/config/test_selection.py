"""Which config a process uses: the first of five places, and one error where none is."""

from pathlib import Path

import pytest

from turbo_physai import OptimizationConfigNotFoundError
from turbo_physai.config import select
from turbo_physai.config.selection import CONFIG_VARIABLE, packaged_configs


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    for name in ("given.yaml", "variable.yaml"):
        (tmp_path / name).touch()
    return tmp_path


def default(folder):
    file = folder / "turbophysai_configs/default/optimization.yaml"
    file.parent.mkdir(parents=True)
    file.touch()
    return file


def test_the_order_of_the_five_places(somewhere, monkeypatch):
    pytest.importorskip("turbo_physai.model_configs")
    assert select() == packaged_configs()["common"]
    file = default(somewhere)
    assert select() == file
    monkeypatch.setenv(CONFIG_VARIABLE, "variable.yaml")
    assert select() == somewhere / "variable.yaml"
    assert select(model="bevformer") == packaged_configs()["bevformer"]
    assert select("given.yaml", "bevformer") == somewhere / "given.yaml"
    assert select(Path("given.yaml")) == somewhere / "given.yaml"


def test_a_models_name_is_spelled_freely():
    pytest.importorskip("turbo_physai.model_configs")
    assert select(model="BEVFormer") == select(model="bevformer")
    with pytest.raises(OptimizationConfigNotFoundError, match="found 'none'; accepted: bevformer"):
        select(model="none")


def test_a_file_that_is_not_there_is_named_with_its_source(somewhere, monkeypatch):
    with pytest.raises(
        OptimizationConfigNotFoundError, match="optimization_config_path: found no file"
    ):
        select("absent.yaml")
    with pytest.raises(OptimizationConfigNotFoundError, match="found a folder"):
        select(somewhere)
    monkeypatch.setenv(CONFIG_VARIABLE, "absent.yaml")
    with pytest.raises(OptimizationConfigNotFoundError, match=f"{CONFIG_VARIABLE}: found no file"):
        select()
