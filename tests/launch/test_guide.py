"""The lines of the guide to launching run as they stand."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from turbo_physai.config.runtime import load_runtime
from turbo_physai.launch.options import Options
from turbo_physai.process import settings

GUIDE = (Path(__file__).parents[2] / "docs" / "launching.md").read_text()
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torchrun needs torch")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


LINES = [line for block in blocks("bash") for line in block.splitlines()]


@pytest.fixture
def training(launch):
    """A launcher in a folder with all that the lines name."""
    program = "import sys, model\nprint(model.norm([3, 4]), *sys.argv[1:])\n"
    launch.project.write(
        {
            "model.py": "def norm(values): return 'slow'\n",
            "quick.py": "def norm(values): return 'fast'\n",
            "train.py": program,
            "tools/train.py": program,
            "train.sh": "exec python train.py\n",
        }
    ).declare("group('demo.norm', replace('model.norm', 'quick.norm'))")
    return launch


@pytest.mark.parametrize("line", [line for line in LINES if "torchrun" not in line])
def test_a_line_starts_an_optimized_training(training, line):
    expected = "fast --lr 1e-4\n" if "--lr" in line else "fast\n"
    assert training("bash", "-c", line).stdout == expected
    assert [report["summary"]["applied"] for report in training.reports] == [1]


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in LINES if "torchrun" in line])
def test_a_line_starts_an_optimized_training_on_two_ranks(training, line):
    line = line.replace("torchrun", "python -m torch.distributed.run")
    assert training("bash", "-c", line, OMP_NUM_THREADS="1").stdout == "fast\nfast\n"
    assert [report["summary"]["applied"] for report in training.reports] == [1, 1]


def test_the_variables_of_the_container_activate_a_process(training):
    variables = dict(re.findall(r"^ENV (\w+)=(.*)$", "".join(blocks("dockerfile")), re.MULTILINE))
    here = {name: value.replace("/app", str(training.path)) for name, value in variables.items()}
    assert training.python("train.py", **here).stdout == "fast\n"
    assert len(training.reports) == 1


def test_the_report_looks_as_shown(training):
    (console,) = blocks("console")
    command, _, expected = console.removeprefix("$ ").partition("\n")
    for rank in "01":
        ranks = {"RANK": rank, "WORLD_SIZE": "2", "TURBO_PHYSAI_RUN_ID": "example"}
        training.activated("train.py", **ranks)
    assert training("bash", "-c", command).stdout == expected


def test_the_runtime_config_is_one(tmp_path):
    (text,) = blocks("yaml")
    (tmp_path / "runtime.yaml").write_text(text)
    config = load_runtime(tmp_path / "runtime.yaml")
    assert config.set == {"OMP_NUM_THREADS": "4"}
    assert config.numa


def test_the_table_is_that_of_the_code():
    table = re.search(r"\| option \| variable.*?\n\n", GUIDE, re.DOTALL)[0]
    listed = [
        [cell.strip(" `") for cell in row.split("|")[1:-1]]
        for row in table.strip().splitlines()[2:]
    ]
    users = [each for each in settings.ALL if not each.is_internal]
    assert listed == [[each.option, each.variable, each.help] for each in users]
    assert all(word in GUIDE for word in (*settings.YES, *settings.NO))


def test_the_options_that_are_listed_are_those_there_are(training):
    table = re.search(r"\| option \| variable.*?\n\n", GUIDE, re.DOTALL)[0]
    listed = set(re.findall(r"`(--[\w-]+)", table))
    for command in (["python", "-m", "turbo_physai.run"], ["turbo-physai", "run"]):
        options = set(re.findall(r"(?<![\w-])--[\w-]+", training(*command, "--help").stdout))
        assert listed <= options
        only_there = options - listed - {"--help"}
        assert all(option in GUIDE for option in only_there), only_there
    # --model has no variable of its own, and --runtime-config is held elsewhere.
    assert len(listed) == len(Options.__attrs_attrs__)
