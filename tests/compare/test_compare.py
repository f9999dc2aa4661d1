"""`turbo-physai compare` runs a command in turns and says what differs."""

import json
import sys
from importlib.util import find_spec

import pytest

COMPARE = ("-m", "turbo_physai.cli", "compare")
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="a training needs torch")

# Stands for a training, so that nothing has to import torch: leaves what a rank would leave.
COMMAND = """
import json, os, sys
from pathlib import Path
asked = json.loads(os.environ["TURBO_PHYSAI_MEASURE"])
off = os.environ["TURBO_PHYSAI_DISABLE_GROUPS"].split(",")
print("disabled:", *off)
if "compat" in off and "needs-compat" in sys.argv:
    sys.exit("no module named old")
groups = {
    "compat": {"state": "applied", "reason": "", "compatibility": True},
    "fast": {"state": "applied", "reason": "", "compatibility": False},
    "never": {"state": "not_started", "reason": "never imported", "compatibility": False},
}
if "nothing-applied" in sys.argv:
    del groups["compat"], groups["fast"]
for group in set(off) & set(groups):
    groups[group]["state"] = "skipped"
steps = 1 if "short" in sys.argv else asked["warmup"] + asked["steps"]
measured = {
    "schema_version": "turbophysai/measured/v1", "rank": 0, "world_size": 1, "device": "cpu",
    "device_name": "", "warmup": asked["warmup"],
    "seconds": [4.0 if "fast" in off else 2.0] * max(steps - asked["warmup"], 0),
    "losses": [1.0] * steps, "groups": groups,
    "peak_bytes": {"process": 2**30, "cuda": None, "cuda_reserved": None},
}
if "silent" not in sys.argv:
    Path(asked["folder"], "measured-0.json").write_text(json.dumps(measured))
with open("calls.txt", "a") as file:
    print(*off, file=file)
"""


@pytest.fixture
def training(project):
    return project.write({"train.py": COMMAND})


def compare(project, *options, arguments=(), code=0):
    quick = ("--steps", "2", "--warmup", "1", "--runs", "1")
    command = (*quick, *options, "--", sys.executable, "train.py", *arguments)
    return project.python(*COMPARE, *command, code=code)


def test_both_sides_run_in_turns(training):
    done = compare(training, "--json", "--runs", "2")
    compared = json.loads(done.stdout)
    calls = (training.path / "calls.txt").read_text().splitlines()
    assert calls == ["", "compat fast never", "", "compat fast never"]
    assert compared["speedup"] == 2.0
    assert [side["name"] for side in compared["sides"]] == ["with", "without"]
    assert [side["applied_groups"] for side in compared["sides"]] == [["compat", "fast"], []]
    assert "with, run 2 of 2: 2 s a step" in done.stderr


def test_groups_that_let_it_run_are_kept_when_asked(training):
    failed = compare(training, arguments=["needs-compat"], code=1)
    assert "without, run 1 of 1: the command ended with 1" in failed.stderr
    assert "no module named old" in failed.stderr
    assert "--only-compat keeps such Groups" in failed.stderr
    shown = compare(training, "--only-compat", arguments=["needs-compat"]).stdout
    assert "without: compat\nwith: compat, fast\n" in shown


def test_an_ablation_and_what_is_left_out_of_both_sides(training):
    done = compare(training, "--ablate", "--json", "--disable-group", "other")
    calls = (training.path / "calls.txt").read_text().splitlines()
    assert calls == ["other", "other compat fast never", "other compat", "other fast"]
    assert json.loads(done.stdout)["seconds_saved"] == {"compat": 0.0, "fast": 2.0}


def test_the_reports_of_all_runs_are_kept_where_they_are_asked_for(training):
    compare(training, "--report-dir", "kept")
    kept = training.path / "kept"
    assert sorted(each.name for each in kept.iterdir()) == [
        "comparison.json",
        "with-1",
        "without-1",
    ]
    assert (kept / "with-1" / "output.txt").read_text() == "disabled: \n"
    error = compare(training, "--report-dir", "kept", code=2).stderr
    assert "which is not empty; accepted: a new or empty folder" in error


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("short", "found 1 optimizer steps in the whole run; at least 2 are needed"),
        ("silent", "no process was measured; the command activates none, so name a config"),
        (
            "nothing-applied",
            "no Group to compare was applied in the run with them:\n"
            "    never: not_started: never imported",
        ),
    ],
)
def test_a_run_that_shows_nothing_is_one_error(training, argument, said):
    assert said in compare(training, arguments=[argument], code=1).stderr


def test_wrong_options_are_refused_before_anything_runs(training):
    error = compare(training, "--steps", "0", "--runs", "-1", code=2).stderr
    assert "--steps: found 0; accepted: a number of at least 1" in error
    assert "--runs: found -1" in error
    error = compare(training, "--model", "bevfromer", code=2).stderr
    assert "found 'bevfromer'; accepted: " in error
    off = training.python(*COMPARE, "--", "true", code=2, TURBO_PHYSAI_DISABLE="1").stderr
    assert "TURBO_PHYSAI_DISABLE: found on; accepted: off" in off
    assert not (training.path / "calls.txt").exists()


@pytest.mark.skipif(find_spec("matplotlib") is not None, reason="matplotlib is installed")
def test_a_chart_without_matplotlib_is_refused_before_anything_runs(training):
    error = compare(training, "--png", "chart.png", code=2).stderr
    assert "--png needs matplotlib, which is not installed: pip install" in error
    assert not (training.path / "calls.txt").exists()


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs matplotlib")
def test_a_chart_is_a_png(training):
    compare(training, "--ablate", "--png", "chart.png")
    assert (training.path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_a_command_that_does_not_exist_is_said(training):
    done = training.python(*COMPARE, "--", "no-such-command", code=1)
    assert done.stderr == "turbo_physai: no-such-command: No such file or directory\n"


# A training whose model is slower on its own code; it would go on for long.
TRAINING = """
import os, sys
import torch
from torch import distributed
import model
torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Linear(4, 1)
if "WORLD_SIZE" in os.environ:
    distributed.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
try:
    for _ in range(10000):
        optimizer.zero_grad()
        model.scaled(net(torch.ones(2, 4)).pow(2).mean()).backward()
        optimizer.step()
finally:
    print("cleaned up")
"""


@pytest.fixture
def real(project):
    slow = "import time\ndef scaled(loss):\n    time.sleep(0.05)\n    return loss\n"
    project.write({"model.py": slow, "quick.py": "def scaled(loss): return loss + 0.5\n"})
    project.write({"train.py": TRAINING})
    return project.declare("group('g', replace('model.scaled', 'quick.scaled'))")


@needs_torch
@pytest.mark.slow
def test_a_training_is_measured_and_ended_in_both_ways(real):
    options = ("--optimization-config", "optimization.yaml", "--report-dir", "kept", "--json")
    compared = json.loads(compare(real, *options).stdout)
    with_, without = compared["sides"]
    assert with_["applied_groups"] == ["g"]
    assert [len(with_["seconds"]), len(with_["losses"])] == [2, 3]
    assert without["median_seconds"] >= 0.05
    assert compared["loss_difference"]["absolute"] == pytest.approx(0.5)
    assert (real.path / "kept" / "with-1" / "output.txt").read_text() == "cleaned up\n"
    (report,) = (real.path / "kept" / "with-1").glob("report-*.json")
    assert json.loads(report.read_text())["run_id"] == f"{compared['run_id']}-with-1"


@needs_torch
@pytest.mark.slow
def test_both_ranks_of_torchrun_are_measured_and_end_with_0(real):
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    own = ("-m", "turbo_physai.run", "--optimization-config", "optimization.yaml", "train.py")
    options = ("--steps", "2", "--warmup", "1", "--runs", "1", "--json", "--")
    done = real.python(*COMPARE, *options, sys.executable, *torchrun, *own)
    compared = json.loads(done.stdout)
    assert compared["ranks"] == 2
    assert compared["warnings"] == []
    assert [len(side["losses"]) for side in compared["sides"]] == [3, 3]
