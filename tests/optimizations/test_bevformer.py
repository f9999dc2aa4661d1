"""BEVFormer trains on the replacements as it trains on its own code: the same losses."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from turbo_physai.report.journal import read

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "bevformer"
REAL = ROOT.parent / "shared" / "data" / "nuscenes_frame"
LAUNCHER = ["-m", "turbo_physai.run", "--optimization-config", str(EXAMPLE / "optimization.yaml")]
SCRIPT = [str(EXAMPLE / "train.py"), "--device", "cpu"]
SMALL = ["--bev", "12", "--embed-dims", "32", "--encoder-layers", "1", "--queries", "80"]
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason=f"no nuScenes key frame at {REAL}")


def start(*arguments, folder):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TURBO_PHYSAI_REPORT_DIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def losses(*arguments, folder):
    process = start(*arguments, folder=folder)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    return [float(loss) for loss in re.findall(r"^step \d+ loss (\S+)", out, re.MULTILINE)]


def journal(folder):
    (file,) = folder.glob("report-*.json")
    return read(file)


def test_the_groups_are_applied_to_trusted_code(tmp_path):
    found = losses(*LAUNCHER, *SCRIPT, "--steps", "2", *SMALL, folder=tmp_path)
    assert len(found) == 2
    report = journal(tmp_path)
    assert report["final"] is True
    states = {id_: group["state"] for id_, group in report["execution"].items()}
    compiling = {"bevformer.compile.encoder", "bevformer.compile.decoder"}
    assert {id_ for id_, state in states.items() if state == "skipped"} == compiling
    assert {state for id_, state in states.items() if id_ not in compiling} == {"applied"}
    for id_ in states.keys() - compiling:
        checks = report["prepared_execution"]["groups"][id_]["checks"]
        assert {c["outcome"] for c in checks if c["name"] == "source_hash"} == {"pass"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(["--data", "synthetic", "--bev", "20"], id="synthetic"),
        pytest.param(["--data", str(REAL)], marks=needs_real, id="nuscenes"),
    ],
)
def test_thirty_steps_have_the_losses_of_the_original(tmp_path, data):
    arguments = [*SCRIPT, *data, "--steps", "30", "--seed", "0"]
    original = losses(*arguments, folder=tmp_path)
    replaced = losses(*LAUNCHER, *arguments, folder=tmp_path)
    assert len(original) == 30
    assert replaced[:10] == pytest.approx(original[:10], rel=1e-4)
    # A training step is no continuous function: where two matchings of boxes cost the same, the
    # last bit decides. What differs by that grows with every step after it.
    assert replaced == pytest.approx(original, rel=0.1)
    assert original[-1] < 0.85 * original[0]


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_a_truthful_report(tmp_path):
    process = start(*LAUNCHER, *SCRIPT, "--steps", "1000", *SMALL, folder=tmp_path)
    while not process.stdout.readline().startswith("step 1 "):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    report = journal(tmp_path)
    assert report["summary"]["applied"] > 1
    bound = [m["target"] for m in report["execution"]["bevformer.msda"]["members"]]
    assert any(target.endswith("fp32.forward") for target in bound)
