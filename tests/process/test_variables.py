"""All variables are looked at together: wrong values, names that nobody knows, relative paths."""

import logging
import os

import pytest

from turbo_physai.errors import OptimizationConfigError
from turbo_physai.process import variables
from turbo_physai.process.variables import make_paths_absolute, require_valid


@pytest.fixture
def warnings(caplog, monkeypatch):
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    caplog.set_level(logging.WARNING, "turbo_physai")
    return caplog


def test_everything_that_is_wrong_is_told_at_once(warnings):
    environment = {
        "TURBO_PHYSAI_STRICT": "si",
        "TURBO_PHYSAI_DISABLE": "2",
        "TURBO_PHYSAI_LOG_REPORT": "off",
    }
    with pytest.raises(OptimizationConfigError) as caught:
        require_valid(environment)
    wrong = {fault.where for fault in caught.value.faults}
    assert wrong == {"TURBO_PHYSAI_STRICT", "TURBO_PHYSAI_DISABLE"}
    require_valid({"TURBO_PHYSAI_STRICT": "YES", "STRICT": "si", "HOME": "/"})
    assert not warnings.messages


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("TURBO_PHYSAI_DISABLE_GROUP", "TURBO_PHYSAI_DISABLE_GROUPS"),
        ("TURBO_PHYSAI_CONFIG", "TURBO_PHYSAI_RUNTIME_CONFIG"),
        ("TURBO_PHYSAI_REPORTDIR", "TURBO_PHYSAI_REPORT_DIR"),
    ],
)
def test_an_unknown_name_is_a_warning_with_the_nearest_one(warnings, name, near):
    require_valid({name: "x"})
    (message,) = warnings.messages
    assert message == f"turbo_physai: there is no variable {name}; did you mean {near}?"


def test_a_name_that_is_near_to_none_lists_those_there_are(warnings):
    require_valid({"TURBO_PHYSAI_ZZZZZZZZZZZZZZZZZZZZZZ": "x"})
    (message,) = warnings.messages
    assert "there are TURBO_PHYSAI_OPTIMIZATION_CONFIG, " in message
    assert "TURBO_PHYSAI_PARENT_RANK" not in message


def test_processes_below_and_other_ranks_do_not_warn_again(warnings, monkeypatch):
    environment = {"TURBO_PHYSAI_A": "", "TURBO_PHYSAI_B": "1"}
    require_valid(environment)
    assert len(warnings.messages) == 2
    environment["TURBO_PHYSAI_C"] = "1"
    require_valid(environment)
    require_valid(environment)
    assert len(warnings.messages) == 3
    monkeypatch.setenv("RANK", "1")
    require_valid({"TURBO_PHYSAI_A": "1"})
    assert len(warnings.messages) == 3


def test_paths_are_made_absolute_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environment = {
        "TURBO_PHYSAI_OPTIMIZATION_CONFIG": "a/../b.yaml",
        "TURBO_PHYSAI_REPORT_DIR": "/out",
        "TURBO_PHYSAI_RUN_ID": "mine",
        "TURBO_PHYSAI_RUNTIME_CONFIG": "",
    }
    make_paths_absolute(environment)
    assert environment == {
        "TURBO_PHYSAI_OPTIMIZATION_CONFIG": f"{tmp_path}/a/../b.yaml",
        "TURBO_PHYSAI_REPORT_DIR": "/out",
        "TURBO_PHYSAI_RUN_ID": "mine",
        "TURBO_PHYSAI_RUNTIME_CONFIG": "",
    }


def test_a_deleted_working_directory_leaves_paths_as_they_are(monkeypatch):
    def gone():
        raise FileNotFoundError

    monkeypatch.setattr(os, "getcwd", gone)
    assert variables.absolute("a") == "a"
    assert variables.absolute("/a") == "/a"
