"""The training script runs on both kinds of data and repeats itself.

That its loss falls is tested where its losses are compared with those of an optimized run.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import train

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "bevformer" / "train.py"
REAL = ROOT.parent / "shared" / "data" / "nuscenes_frame"
SMALL = ["--bev", "12", "--embed-dims", "32", "--encoder-layers", "1", "--queries", "80"]
STEP = re.compile(r"step (\d+) loss (\d+\.\d{4}) time \d+\.\d\d s")
LAST = re.compile(r"first loss (\d+\.\d{4}) last loss (\d+\.\d{4}) median step time \d+\.\d{3} s")
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason=f"no nuScenes key frame at {REAL}")
each_kind_of_data = pytest.mark.parametrize(
    "data", ["synthetic", pytest.param(str(REAL), marks=needs_real, id="nuscenes")]
)


def losses_of(output):
    """The losses that a run printed, step by step."""
    *steps, last = output.splitlines()
    found = [STEP.fullmatch(line) for line in steps]
    assert [int(match[1]) for match in found] == list(range(1, len(found) + 1))
    losses = [float(match[2]) for match in found]
    assert [float(loss) for loss in LAST.fullmatch(last).groups()] == [losses[0], losses[-1]]
    return losses


def run_script(*arguments):
    command = [sys.executable, str(SCRIPT), "--device", "cpu", *arguments]
    # One thread: on busy cores, several spend most of their time waiting for each other.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment)


@pytest.fixture
def run_main(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["train.py", "--device", "cpu", *SMALL, *arguments])
        train.main()
        return losses_of(capsys.readouterr().out)

    return run


@pytest.mark.slow
@each_kind_of_data
def test_the_script_trains_and_shows_its_progress(data):
    result = run_script("--data", data, "--steps", "2", *SMALL)
    assert len(losses_of(result.stdout)) == 2
    assert "2/2" in result.stderr


def test_the_same_seed_gives_the_same_losses(run_main):
    first, second = (run_main("--steps", "3", "--seed", "7") for _ in range(2))
    assert first == pytest.approx(second, abs=1e-4)


def test_another_seed_gives_other_losses(run_main):
    one, other = (run_main("--steps", "1", "--seed", seed) for seed in "12")
    assert one != other


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "--data: nowhere is not a frame: it has no frame.json"),
        (["--steps", "0"], "--steps is 0; at least 1 is needed"),
        (["--levels", "5"], "argument --levels: invalid choice: 5"),
    ],
)
def test_a_bad_argument_is_named(run_main, capsys, arguments, message):
    with pytest.raises(SystemExit) as exit_:
        run_main(*arguments)
    assert message in f"{exit_.value} {capsys.readouterr().err}"
