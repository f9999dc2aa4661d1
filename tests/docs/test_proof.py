"""The lines of the page on calls and verification run as they stand."""

import re
from pathlib import Path

import pytest

from turbo_physai.process import settings

PAGE = (Path(__file__).parents[2] / "docs" / "proof.md").read_text()
LINES = re.findall(r"```bash\n(.*?)\n```", PAGE, re.DOTALL)


@pytest.fixture
def training(project):
    project.write(
        {
            "model.py": "def norm(x): return x\ndef never(x): return x\n",
            "quick.py": "def norm(x): return WRONG\nWRONG = 2\n",
            "train.py": "import model\nprint(model.norm(1), model.norm(1))\n",
        }
    )
    return project.declare("""
        group('norm', replace('model.norm', 'quick.norm')),
        group('never', replace('model.never', 'quick.norm'))
    """)


@pytest.mark.parametrize("line", LINES)
def test_a_line_starts_a_training_that_tells(training, line):
    done = training.python(*line.split()[1:])
    assert "applied, but never ran: never (never called in this process)" in done.stderr
    if "--verify" in line:
        assert done.stdout == "1 1\n"
        mismatch = "call 1: output: found 2, the original gives 1. Inputs: x 1"
        assert f"rolled_back): model.norm: MismatchError: {mismatch}" in done.stderr
    else:
        assert done.stdout == "2 2\n"
        assert "- calls: none" in done.stderr  # the report is logged before the first call


def test_the_declarations_of_the_page_are_valid():
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "proof.md", "exec"), {})


def test_the_page_names_every_option():
    options = (settings.OBSERVE, settings.VERIFY, settings.VERIFY_EVERY, settings.VERIFY_SAVE)
    assert all(
        f"`{o.option.split()[0]}" in PAGE or f"{o.option.split()[0]} " in PAGE for o in options
    )


def test_the_tolerances_are_those_of_the_page():
    from turbo_physai.verify.compare import _TOLERANCES

    text = " ".join(PAGE.split())
    for dtype, tolerance in _TOLERANCES.items():
        shown = f"{tolerance:.0e}".replace("e-0", "e-")
        assert f"{shown} in {dtype}" in text
