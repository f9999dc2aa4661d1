"""The Triton kernels of spatial_cross_attention, interpreted, and on a GPU if there is one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

if sys.platform != "linux":
    pytest.skip("Triton runs on Linux", allow_module_level=True)

from turbo_physai.kernels.ops import _triton_launch as launch
from turbo_physai.kernels.ops import spatial_cross_attention_triton as op
from turbo_physai.kernels.ops._triton_launch import Size

RunChecks = Callable[..., None]
CHECKS = Path(__file__).with_name("triton_spatial_cross_attention_checks.py")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["not slow", "slow"])
def test_interpreted_kernels_agree_with_autograd(run_checks: RunChecks, part: str) -> None:
    run_checks(CHECKS, part, TRITON_INTERPRET="1")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_compiled_kernels_agree_with_autograd(run_checks: RunChecks) -> None:
    run_checks(CHECKS, TRITON_INTERPRET="0")


def test_a_saved_size_is_used_instead_of_the_built_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sizes.json"
    monkeypatch.setenv(launch.VARIABLE, str(path))
    value = torch.zeros(1, 1, 1, 1, 32)
    saved = Size(rows=64, warps=8, registers=None)
    launch.save(path, {"spatial_cross_attention_forward/cpu/float32/32": saved})
    assert op.size_for("forward", value) == saved
    assert op.size_for("backward", value) == launch.default_size("backward", 32)
    assert op.size_for("forward", value.half()) == launch.default_size("forward", 32)


def test_tuning_needs_a_gpu() -> None:
    value = torch.zeros(1, 1, 1, 1, 4)
    with pytest.raises(RuntimeError, match="measured on a CUDA device, not on cpu"):
        op.tune(value, value, value, value, value, value, value)
