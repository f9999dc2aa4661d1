"""The lines of the guide to measuring run as they stand."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

GUIDE = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text()
LINES = [
    line
    for block in re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
    for line in block.splitlines()
]
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="a training needs torch")


@pytest.fixture
def training(project):
    """A folder with what the lines name."""
    train = """
        import torch, model
        weight = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        while True:
            (weight * model.norm([3, 4])).backward()
            optimizer.step()
    """
    project.write(
        {
            "model.py": "def norm(values): return 5.0\n",
            "quick.py": "def norm(values): return 5.0\n",
            "train.py": train,
            "train.sh": "exec python train.py\n",
        }
    ).declare("group('demo.norm', replace('model.norm', 'quick.norm'))")
    programs = project.path / "bin"
    programs.mkdir()
    for name, arguments in (("python", ""), ("turbo-physai", "-m turbo_physai.cli")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    return project


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_a_line_measures_a_training(training, line):
    for option in ("--runs 2", "--steps 20"):  # fewer runs than the guide has
        line = line.replace(option, "")
    line = line.replace("compare", "compare --runs 1 --steps 3", 1)
    script = "import os; os.environ['PATH'] = 'bin:' + os.environ['PATH']\nimport subprocess\n"
    script += f"print(subprocess.run({line!r}, shell=True, check=True, text=True))"
    shown = training.python("-c", script).stdout
    assert "with: demo.norm" in shown
    assert ("all at once" in shown) == ("--ablate" in line)


def test_every_option_is_listed(project):
    table = re.search(r"\| option \|.*?\n\n", GUIDE, re.DOTALL)[0]
    shown = project.python("-m", "turbo_physai.cli", "compare", "--help").stdout
    options = set(re.findall(r"(?<![\w-])--[\w-]+", shown)) - {"--help"}
    assert options == set(re.findall(r"`(--\w[\w-]+)", table))
