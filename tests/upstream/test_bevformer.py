"""The official BEVFormer repository trains on this environment's stack, not a file of it edited.

    pytest tests/upstream --bevformer-repo PATH

PATH is a clean checkout; docs/bevformer.md says what the environment needs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

import turbo_physai
from turbo_physai.optimizations.bevformer import catalog
from turbo_physai.report.journal import read

pytestmark = [pytest.mark.upstream, pytest.mark.slow]

# R50 with the deformable convolutions of the larger configs, on images of 192 x 320.
CONFIG = """\
_base_ = ["{repo}/projects/configs/bevformer/bevformer_tiny.py"]
model = dict(
    pretrained=None,
    img_backbone=dict(
        dcn=dict(type="DCNv2", deform_groups=1, fallback_on_stride=False),
        stage_with_dcn=(False, False, True, True),
    ),
)
data = dict(workers_per_gpu=0, train=dict(ann_file="{infos}", queue_length=2))
total_epochs = 1
runner = dict(max_epochs=1)
log_config = dict(_delete_=True, interval=1, hooks=[dict(type="TextLoggerHook")])
"""
SCALE = "data.train.pipeline.6.scales=[0.2]"


@attrs.frozen
class Run:
    """What a training has left.

    Attributes:
        losses: of each iteration.
        report: of turbo_physai, as JSON holds it.
        checkpoint: the file that the epoch ended with.
    """

    losses: list[float]
    report: dict[str, Any]
    checkpoint: Path

    @property
    def states(self) -> dict[str, str]:
        return {name: group["state"] for name, group in self.report["execution"].items()}


@pytest.fixture(scope="module")
def repo(request: pytest.FixtureRequest) -> Path:
    given = request.config.getoption("--bevformer-repo")
    if given is None:
        pytest.skip("no official BEVFormer repository: pass --bevformer-repo PATH")
    return Path(given).resolve()


@pytest.fixture(scope="module")
def train(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    from .nuscenes_like import write  # needs what other tests can do without

    folder = tmp_path_factory.mktemp("upstream")
    (folder / "data").mkdir()
    config = folder / "tiny.py"
    config.write_text(CONFIG.format(repo=repo, infos=write(folder / "data")))

    def train(
        name: str, disable: Sequence[str] = (), *more: str, options: Sequence[str] = ()
    ) -> Run:
        ours = ["--model", "bevformer", "--report-dir", str(folder / name), *options]
        ours += [word for group in disable for word in ("--disable-group", group)]
        theirs = ["--no-validate", "--work-dir", str(folder / name), *more, "--cfg-options", SCALE]
        _run(repo, "-m", "turbo_physai.run", *ours, "tools/train.py", str(config), *theirs)
        (log,) = (folder / name).glob("*.log.json")
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        (report,) = (folder / name).glob("report-*.json")
        return Run(
            [entry["loss"] for entry in entries if entry.get("mode") == "train"],
            read(report),
            folder / name / "epoch_1.pth",
        )

    return train


def _run(repo: Path, *arguments: str) -> None:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TURBO_PHYSAI_")}
    own = {"PYTHONPATH": str(repo), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=repo,
        env={**inherited, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3000,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]


def _git_status(repo: Path) -> str:
    command = ["git", "-C", str(repo), "status", "--porcelain", "--ignored"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def speed_groups() -> list[str]:
    """The enabled Groups that a training can do without."""
    needed = {"bevformer.grid_mask"}  # the original asks for a GPU
    prepared = turbo_physai.check(model="bevformer")
    declared = {group.id for group in catalog.GROUPS} - needed
    return [
        id_ for id_, each in prepared.groups.items() if id_ in declared if each.decision != "skip"
    ]


@pytest.fixture(scope="module")
def before(repo: Path) -> str:
    return _git_status(repo)


@pytest.fixture(scope="module")
def whole(before: str, train: Callable[..., Run]) -> Run:
    return train("all")


@pytest.fixture(scope="module")
def bare(before: str, train: Callable[..., Run], speed_groups: list[str]) -> Run:
    assert speed_groups
    return train("compat", speed_groups)


def test_a_whole_epoch_is_trained_and_saved(whole: Run) -> None:
    assert len(whole.losses) == 6
    assert whole.losses[-1] < whole.losses[0]
    assert whole.checkpoint.stat().st_size > 1e8  # parameters and the optimizer's state


def test_every_group_is_applied(whole: Run) -> None:
    assert whole.report["final"] is True
    others = {id_: state for id_, state in whole.states.items() if state != "applied"}
    assert set(others.values()) <= {"skipped"}, others
    prepared = whole.report["prepared_execution"]["groups"]
    assert {prepared[id_]["reason"] for id_ in others} <= {"not enabled in the config"}


def test_the_repository_is_the_one_that_was_validated(whole: Run) -> None:
    groups = whole.report["prepared_execution"]["groups"].values()
    checks = [check for group in groups for check in group["checks"]]
    hashes = [c for c in checks if c["name"] in ("source_hash", "ast_hash", "trust")]
    assert hashes
    assert {check["outcome"] for check in hashes} == {"pass"}


def test_the_losses_are_those_of_the_original_code(
    whole: Run, bare: Run, speed_groups: list[str]
) -> None:
    assert all(bare.states[id_] == "skipped" for id_ in speed_groups)
    assert whole.losses[:3] == pytest.approx(bare.losses[:3], rel=1e-3)


def test_a_training_resumes_from_its_checkpoint(bare: Run, train: Callable[..., Run]) -> None:
    """Whose meta data holds whatever mmcv puts there."""
    resumed = train("resumed", (), "--resume-from", str(bare.checkpoint))
    assert resumed.losses == []  # its only epoch was done


def test_every_replacement_does_what_its_original_does(
    whole: Run, train: Callable[..., Run]
) -> None:
    verified = train("verified", options=["--verify", "1"])
    assert verified.states == whole.states
    members = [m for g in verified.report["execution"].values() for m in g["members"]]
    compared = {m["target"]: m["verification"] for m in members if m["verification"]}
    assert not [each["mismatch"] for each in compared.values() if each["mismatch"]]
    for target in (
        "SpatialCrossAttention",
        "TemporalSelfAttention",
        "ModulatedDeformConv2dFunction",
    ):
        (found,) = [v for name, v in compared.items() if name.endswith(f"{target}.forward")]
        assert found["with_gradients"], (target, found)
    assert verified.losses == pytest.approx(whole.losses, rel=1e-3)


def test_the_checkout_is_untouched(repo: Path, before: str, whole: Run, bare: Run) -> None:
    assert _git_status(repo) == before
