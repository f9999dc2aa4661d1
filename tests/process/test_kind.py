"""Trainings are told from everything else that python runs, by their command and environment."""

import os
import sys
from pathlib import Path

import pytest

from turbo_physai.process import kind
from turbo_physai.process.command import Command
from turbo_physai.process.kind import kind_of

SITE = "lib/python3/site-packages"
RANK = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
SLURM = {"SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}

# Arguments of python, and variables that are set.
COMMANDS = {
    "program": [
        (["train.py", "--lr", "1"], {}),
        (["-u", "tools/train.py"], {}),
        (["/elsewhere/train.py"], {}),
        (["bin/train.py"], {}),
        (["work"], {}),
        (["-m", "train"], {}),
        (["-m", "tools.train"], {}),
        (["-m", "no.such.module"], {}),
        # The working directory comes before the installed modules.
        (["-m", "json_like"], {}),
        # Programs that run another one inside of them.
        (["-m", "cProfile", "-o", "out", "train.py"], {}),
        (["-m", "pdb", "train.py"], {}),
        (["{venv}/bin/coverage", "run", "train.py"], {}),
        (["{venv}/" + SITE + "/ray/_private/workers/default_worker.py"], {}),
        (["-m", "turbo_physai.run", "train.py"], {}),
        # The rank of a machine, and of a batch job.
        (["train.py"], {"RANK": "0", "WORLD_SIZE": "2"}),
        (["train.py"], SLURM),
        # Garbled.
        (["train.py"], {"RANK": "²", "LOCAL_RANK": "9" * 5000, "WORLD_SIZE": "-1"}),
    ],
    "tool": [
        (["{venv}/bin/pip", "install", "x"], {}),
        (["{venv}/bin/pytest"], {}),
        (["/usr/bin/cmake-helper"], {}),
        (["{home}/.local/bin/black", "train.py"], {}),
        (["-m", "pip", "install", "-e", "."], {}),
        (["-m", "pytest", "tests"], {}),
        (["-m", "json.tool"], {}),
        (["-m", "http.server"], {}),
        (["-m", "venv", "x"], {}),
        (["-m", "sys"], {}),
        (["{venv}/" + SITE + "/pip/__pip-runner__.py"], {}),
        (["{stdlib}/timeit.py"], {}),
        # A folder that is no package does not hide an installed module of its name.
        (["-m", "packages_folder"], {}),
        # The rank of a machine, and of a batch job.
        (["-m", "pip", "list"], {"RANK": "0", "WORLD_SIZE": "2"}),
        (["{venv}/bin/pip", "list"], SLURM),
        # What a package runs while it is built.
        (["codegen.py"], {"PIP_BUILD_TRACKER": "/tmp/x"}),
        (["setup.py", "build"], {"_PYPROJECT_HOOKS_BUILD_BACKEND": "setuptools"}),
    ],
    "rank": [
        (["train.py"], RANK),
        (["-m", "train"], RANK),
        (["-m", "pip"], RANK),
        (["{venv}/bin/train"], RANK),
        (["train.py"], {**SLURM, "SLURM_STEP_ID": "0"}),
        (["{venv}/bin/train"], {**SLURM, "SLURM_STEP_ID": "0"}),
        (["train.py"], {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}),
        # Lightning's own launcher.
        (["train.py"], {"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}),
        # Not that of the process above.
        (["train.py"], {**RANK, "PARENT": "0"}),
        (["train.py"], {**RANK, "PARENT": "none"}),
    ],
    "code": [
        (["-c", "print(1)"], {}),
        (["-uc", "print(1)"], RANK),
        (["-"], {}),
        ([], {}),
        (["-i"], {}),
    ],
    "helper": [
        (["helper.py"], {**RANK, "PARENT": "1"}),
        (["helper.py"], {"RANK": "0", "PARENT": "0"}),
        (["-m", "pip"], {**RANK, "PARENT": "1"}),
        (["-c", "from multiprocessing.spawn import spawn_main; spawn_main(1)"], {}),
        (["-c", "from multiprocessing.forkserver import main; main(1)"], RANK),
        (["-c", "from multiprocessing.resource_tracker import main;main(1)"], {}),
    ],
}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An environment with some modules, and a working directory with the user's own."""
    venv, work = tmp_path / "venv", tmp_path / "work"
    for file in (
        venv / SITE / "pip" / "__init__.py",
        venv / SITE / "pytest.py",
        venv / SITE / "json_like.py",
        venv / SITE / "packages_folder" / "__init__.py",
        work / "json_like.py",
        work / "train.py",
        work / "tools" / "train.py",
        work / "packages_folder" / "data.txt",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    for name in list(os.environ):
        if name.startswith(("RANK", "LOCAL_", "WORLD_", "NODE_", "SLURM", "OMPI", "PIP_", "PEP")):
            monkeypatch.delenv(name)
    stdlib = str(Path(os.__file__).parent)
    monkeypatch.chdir(work)
    monkeypatch.setattr(sys, "prefix", str(venv))
    monkeypatch.setattr(sys, "path", [stdlib, str(venv / SITE)])
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return {"venv": venv, "home": tmp_path / "home", "stdlib": stdlib}


def found(arguments, variables, installed, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    arguments = [argument.format(**installed) for argument in arguments]
    return kind_of(Command.parse(arguments), variables.get("PARENT"))


@pytest.mark.parametrize(
    ("expected", "arguments", "variables"),
    [(expected, *command) for expected, commands in COMMANDS.items() for command in commands],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, list) else None,
)
def test_what_a_command_is(expected, arguments, variables, installed, monkeypatch):
    assert found(arguments, variables, installed, monkeypatch) == expected


def test_an_isolated_interpreter_is_no_training_unless_it_is_a_rank(installed, monkeypatch):
    class Flags:
        isolated, safe_path = 1, True

    monkeypatch.setattr(kind.sys, "flags", Flags)
    assert found(["train.py"], {}, installed, monkeypatch) == "isolated"
    assert found(["train.py"], RANK, installed, monkeypatch) == "rank"


def test_a_linked_command_is_where_it_is_called_and_where_it_lies(installed, monkeypatch, tmp_path):
    bin_ = installed["venv"] / "bin"
    bin_.mkdir()
    (bin_ / "tool").touch()
    link = tmp_path / "link"
    link.symlink_to(bin_ / "tool")
    assert found([str(link)], {}, installed, monkeypatch) == "tool"
    (bin_ / "back").symlink_to(tmp_path / "work" / "train.py")
    assert found([str(bin_ / "back")], {}, installed, monkeypatch) == "tool"


def test_a_deleted_working_directory_makes_no_tool_of_a_program(installed, monkeypatch):
    def gone():
        raise FileNotFoundError

    monkeypatch.setattr(os, "getcwd", gone)
    assert found(["train.py"], {}, installed, monkeypatch) == "program"
    assert found(["-m", "train"], {}, installed, monkeypatch) == "program"
    assert found(["-m", "pip"], {}, installed, monkeypatch) == "tool"
