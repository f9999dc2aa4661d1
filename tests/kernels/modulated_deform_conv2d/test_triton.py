"""The Triton kernels of modulated_deform_conv2d, interpreted and on a GPU if there is one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", "3.6", reason="Triton runs on Linux")

from turbo_physai.kernels.ops.modulated_deform_conv2d import _triton as op
from turbo_physai.kernels.ops.modulated_deform_conv2d._geometry import Geometry

RunInterpreted = Callable[..., None]
TESTS = Path(__file__).with_name("test_definition.py")


@pytest.mark.slow
def test_interpreted_kernels_follow_the_definition(run_interpreted: RunInterpreted) -> None:
    run_interpreted(TESTS)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_compiled_kernels_follow_the_definition(run_interpreted: RunInterpreted) -> None:
    run_interpreted(TESTS, interpret=False)


@pytest.mark.parametrize(("setting", "wanted"), [("high", "tf32"), ("highest", "ieee")])
def test_float32_is_multiplied_as_torch_multiplies_it(setting: str, wanted: str) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(setting)
        assert op.precision() == wanted
    finally:
        torch.set_float32_matmul_precision(before)


def test_float32_is_multiplied_exactly_unless_asked_otherwise() -> None:
    script = (
        "from turbo_physai.kernels.ops.modulated_deform_conv2d import _triton as op;"
        "print(op.precision())"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "ieee\n"


@pytest.mark.parametrize(
    ("channels", "groups", "deform_groups", "run", "block", "outs"),
    [
        ((256, 256), 1, 1, 256, 32, 128),
        ((256, 256), 1, 4, 64, 32, 128),
        ((64, 48), 1, 1, 64, 32, 64),
        ((12, 4), 2, 3, 2, 16, 16),
        ((8, 8), 8, 1, 1, 16, 16),
    ],
)
def test_a_block_of_channels_lies_in_one_group_and_one_deform_group(
    channels: tuple[int, int], groups: int, deform_groups: int, run: int, block: int, outs: int
) -> None:
    pair = (1, 1)
    geometry = Geometry((9, 9), (3, 3), pair, pair, pair, groups, deform_groups)
    constants = op.constants(channels, geometry, "ieee")
    assert (constants["RUN"], constants["BLOCK"], constants["OUTS"]) == (run, block, outs)
    assert op.of_data(constants)["OUTS"] == min(outs, 64)
