"""The tests of mmcv, torchvision and Deformable DETR pass through the faces.

They are not copied: `--peer-tests NAME=PATH` says where a checkout of the library lies, or a folder
with its test files. mmcv and torchvision themselves have to be importable.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.upstream
SUPPORT = Path(__file__).parents[1] / "support"
NARROW = (30, 32, 64, 71)
"""Channels of Deformable DETR's numerical gradients; the Jacobian of 1025 takes gigabytes."""


@pytest.fixture
def peer(request):
    """The folder given for a peer, by its name."""
    given = dict(one.split("=", 1) for one in request.config.getoption("--peer-tests"))

    def peer(name):
        if name not in given:
            pytest.skip(f"needs --peer-tests {name}=PATH")
        return Path(given[name])

    return peer


def run(name, *command):
    done = subprocess.run(
        [sys.executable, *command],
        env={
            **os.environ,
            "TURBO_PHYSAI_PEER": name,
            "PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pytest_run(name, file, *options):
    plugin = ("-p", "peers_on_cpu", "-p", "no:cacheprovider", "-W", "ignore")
    return run(
        name, "-m", "pytest", "-q", *plugin, "--rootdir", str(file.parent), *options, str(file)
    )


@pytest.mark.parametrize("file", ["test_ms_deformable_attn.py", "test_modulated_deform_conv.py"])
def test_mmcv_s_tests_pass(peer, file):
    (path,) = peer("mmcv").rglob(file)
    assert "passed" in pytest_run("mmcv", path)


def test_torchvision_s_tests_of_deform_conv2d_pass(peer):
    (path,) = peer("torchvision").rglob("test_ops.py")
    assert "passed" in pytest_run("torchvision", path, "-k", "TestDeformConv and not cuda")


def test_deformable_detr_s_checks_pass(peer):
    (path,) = peer("deformable-detr").rglob("models/ops/test.py")
    printed = run("deformable-detr", __file__, str(path))
    assert printed.count("* True") == 2 + len(NARROW)
    assert "* False" not in printed


if __name__ == "__main__":
    sys.path[:0] = [str(SUPPORT), str(Path(sys.argv[1]).parent)]
    import peers_on_cpu  # noqa: F401

    checks = runpy.run_path(sys.argv[1])
    checks["check_forward_equal_with_pytorch_double"]()
    checks["check_forward_equal_with_pytorch_float"]()
    for channels in NARROW:
        checks["check_gradient_numerical"](channels)
