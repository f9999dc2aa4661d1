"""What python was told to run is read from its own command line, as python reads it."""

import json
import subprocess
import sys

import pytest

from turbo_physai.process.command import Command

COMMANDS = {
    "script": (["train.py", "-m", "x"], ("script", "train.py")),
    "flags": (["-u", "-OO", "-X", "dev", "-W", "ignore", "t.py"], ("script", "t.py")),
    "values in flags": (["-Xdev", "-Wignore", "-bb", "t.py"], ("script", "t.py")),
    "long flag": (["--check-hash-based-pycs", "always", "t.py"], ("script", "t.py")),
    "module": (["-m", "pkg.mod", "-c", "x"], ("module", "pkg.mod")),
    "module at once": (["-umpkg.mod", "a"], ("module", "pkg.mod")),
    "module in flags": (["-Im", "pkg"], ("module", "pkg")),
    "code": (["-c", "pass", "t.py"], ("code", "pass")),
    "code in flags": (["-BEc", "pass"], ("code", "pass")),
    "nothing": (["-i"], ("nothing", "")),
    "standard input": (["-", "t.py"], ("nothing", "")),
    "standard input behind flags": (["-u", "-", "-m", "x"], ("nothing", "")),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_command_is_found_behind_the_options(case):
    arguments, (kind, name) = COMMANDS[case]
    assert Command.parse(arguments) == Command(kind, name)


def test_python_keeps_its_command_line_for_us():
    show = "import json, sys; sys.argv[:] = []; print(json.dumps(sys.orig_argv[1:]))"
    command = [sys.executable, "-B", "-Wignore", "-c", show, "a"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert Command.parse(json.loads(done.stdout)) == Command("code", show)


@pytest.mark.parametrize(
    "command",
    [
        Command("script", "/venv/bin/torchrun"),
        Command("script", "accelerate"),
        Command("module", "torch.distributed.run"),
        Command("module", "torch.distributed.launch"),
        Command("script", "/venv/bin/turbo-physai"),
    ],
)
def test_launchers_are_known_by_name(command):
    assert command.is_launcher


@pytest.mark.parametrize(
    "command",
    [
        Command("script", "train.py"),
        Command("script", "torchrun/train.py"),
        Command("module", "torch.distributed"),
        Command("module", "turbo_physai.run"),
        Command("code", "torchrun"),
        Command("nothing"),
    ],
)
def test_other_commands_are_no_launchers(command):
    assert not command.is_launcher


def test_workers_are_known_by_the_code_that_multiprocessing_starts():
    from multiprocessing import spawn

    command = spawn.get_command_line(tracker_fd=1, pipe_handle=2)
    assert Command.parse(command[1:]).is_worker
    assert not Command("code", "import multiprocessing").is_worker
