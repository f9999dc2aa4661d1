"""The command line of `python -m turbo_physai.run`: our options, then a program with its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from turbo_physai.launch.arguments import parse
from turbo_physai.launch.options import SHARED, Options
from turbo_physai.launch.program import Program

ROOT = Path(__file__).parents[2]


def test_everything_can_be_told():
    line = (
        "--model bevformer --optimization-config o.yaml --runtime-config r.yaml --force-group a "
        "--force-group b --disable-group=c --log-report --report-dir out --run-id mine --strict "
        "--observe --verify 2 --verify-every 9 --verify-save kept --disable train.py --lr 1"
    )
    options, runtime, program = parse(line.split())
    assert options == Options(
        "bevformer",
        "o.yaml",
        ("a", "b"),
        ("c",),
        True,
        "out",
        "mine",
        True,
        True,
        "2",
        "9",
        "kept",
        True,
    )
    assert runtime == "r.yaml"
    assert program == Program("train.py", ("--lr", "1"))


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("train.py", Program("train.py")),
        ("--strict train.py --strict --help", Program("train.py", ("--strict", "--help"))),
        ("--run-id -x train.py", Program("train.py")),
        ("-m tools.train -m x", Program("tools.train", ("-m", "x"), is_module=True)),
        ("-m --strict tools.train", Program("tools.train", (), is_module=True)),
        ("- --lr 1", Program("-", ("--lr", "1"))),
        ("-- --strict", Program("--strict")),
        ("-- train.py -- x", Program("train.py", ("--", "x"))),
    ],
)
def test_what_follows_the_program_is_the_programs(line, program):
    assert parse(line.split())[2] == program


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no program was named; accepted: a script, or a module after -m"),
        ("-m", "no program was named"),
        ("--strict --", "no program was named"),
        ("--modell bevformer train.py", "no such option: --modell; did you mean '--model'?"),
        ("--mod bevformer train.py", "no such option: --mod"),
        ("--mod=bevformer train.py", "no such option: --mod"),
        ("--run-id", "--run-id: expected one argument"),
        ("--strict=1 train.py", "--strict: ignored explicit argument '1'"),
    ],
)
def test_what_is_wrong_is_said_and_ends_with_2(line, message, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(line.split())
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_both_launchers_take_the_shared_options_with_one_help():
    shown = {}
    for module, command in (("turbo_physai.run", ()), ("turbo_physai.cli", ("run",))):
        code = f"import sys; from {module} import main; sys.argv[1:] = {[*command, '--help']}"
        done = subprocess.run(
            [sys.executable, "-c", f"{code}; main()"],
            env={"PYTHONPATH": str(ROOT), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=True,
        )
        shown[module] = " ".join(done.stdout.split())
    for each in SHARED:
        for module, text in shown.items():
            assert re.search(rf"{each.option} {re.escape(each.help)}", text), (module, each.option)


def test_the_command_line_is_read_without_typer():
    code = "import turbo_physai.run, sys; print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"typer", "click", "torch"} & set(eval(done.stdout))
