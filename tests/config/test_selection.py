"""Which config a process uses: the first of five places, and one error where none is."""

import re
from pathlib import Path

import pytest

from turbo_physai import OptimizationConfigNotFoundError
from turbo_physai.config import select
from turbo_physai.config.selection import packaged_configs

CONFIG_VARIABLE = "TURBO_PHYSAI_OPTIMIZATION_CONFIG"


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


def test_a_config_that_nobody_named_is_told_of(somewhere, caplog):
    pytest.importorskip("turbo_physai.model_configs")
    assert select() == packaged_configs()["common"]
    assert caplog.messages == []
    file = default(somewhere)
    assert select() == file
    (message,) = caplog.messages
    assert message == (
        f"turbo_physai: using {file}, because no config was named and it lies in this folder"
    )
    assert select("given.yaml") == somewhere / "given.yaml"
    assert len(caplog.messages) == 1


def test_it_is_not_taken_where_folders_are_not_trusted(somewhere, caplog, monkeypatch):
    pytest.importorskip("turbo_physai.model_configs")
    file = default(somewhere)
    assert select(from_folder=False) == packaged_configs()["common"]
    monkeypatch.setattr("turbo_physai.config.selection.is_path_safe", lambda: True)
    assert select() == packaged_configs()["common"]
    assert (
        caplog.messages
        == [f"turbo_physai: not using {file}, because nobody named it; --optimization-config does"]
        * 2
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("x" * 5000 + ".yaml", "found nothing that can be read (File name too long)"),
        ("given.yaml/x", "found no file"),
        ("nul\0", "found nothing that can be read"),
        ("/dev/null", "found a device or pipe"),
    ],
)
def test_what_cannot_be_read_is_told_apart(path, message):
    with pytest.raises(OptimizationConfigNotFoundError, match=re.escape(message)):
        select(path)


@pytest.mark.skipif("os.geteuid() == 0", reason="root may enter any folder")
def test_a_folder_that_may_not_be_entered_is_no_traceback(somewhere):
    (somewhere / "closed").mkdir(mode=0)
    with pytest.raises(OptimizationConfigNotFoundError, match="Permission denied"):
        select("closed/optimization.yaml")


def test_a_deleted_working_directory_hides_relative_paths_alone(somewhere, monkeypatch):
    given, gone = somewhere / "given.yaml", somewhere / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert select(given) == given
    with pytest.raises(OptimizationConfigNotFoundError, match="found no file"):
        select("given.yaml")
