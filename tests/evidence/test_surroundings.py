"""The repository that a config names is recognised by its commit, or by what its remotes tell."""

import subprocess

import pytest

from turbo_physai.config import Compatibility
from turbo_physai.evidence import surroundings
from turbo_physai.evidence.repository import Repositories

NAME = "fundamentalvision/BEVFormer"


@pytest.fixture
def clone(tmp_path):
    """A git work tree with one commit."""
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    (tmp_path / "file").touch()
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def outcome(clone, remote, commits=None):
    if remote is not None:
        subprocess.run(["git", "remote", "add", "origin", remote], cwd=clone, check=True)
    stated = Compatibility(repository=(NAME,), commits=commits)
    checks = surroundings.repository(stated, clone, Repositories())
    return {check.name: check.outcome for check in checks}


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        (f"https://github.com/{NAME}.git", "pass"),
        (f"git@github.com:{NAME.lower()}", "pass"),
        (f"https://mirror.example.com/proxy/github.com/{NAME}", "pass"),
        ("https://github.com/somebody/BEVFormer", "warning"),
        ("https://git.example.com/mirrors/bevformer", "unknown"),
        ("/data/repositories/checkout", "unknown"),
        ("../BEVFormer", "unknown"),
        (None, "unknown"),
    ],
)
def test_only_another_repository_of_the_same_forge_is_worth_a_warning(clone, remote, expected):
    assert outcome(clone, remote) == {"repository": expected}


@pytest.mark.parametrize("remote", ["https://github.com/somebody/fork", "/data/x", None])
def test_a_stated_commit_tells_the_repository_whatever_the_remote_is(clone, remote):
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=clone, check=True, capture_output=True, text=True
    ).stdout.strip()
    assert outcome(clone, remote, (head,)) == {"repository": "pass", "commit": "pass"}
    assert outcome(clone, None, ("0123",))["commit"] == "warning"
