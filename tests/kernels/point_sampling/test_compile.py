"""The Triton kernel of point_sampling, interpreted and on a GPU if there is one, and its code."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", "3.6", reason="Triton runs on Linux")

from kernel_machine_code import AMD, NVIDIA, Code, compiled
from turbo_physai.kernels.ops.point_sampling import _triton as op

RunInterpreted = Callable[..., None]
TESTS = Path(__file__).with_name("test_definition.py")
A_THREADS_POINTS = op.BLOCK // (32 * op.OPTIONS["num_warps"])
COMPILED = [
    pytest.param(arch, points, matrices, marks=() if arch == 90 else pytest.mark.slow)
    for arch in NVIDIA
    for points, matrices in (("fp32", "fp32"), ("fp16", "fp32"), ("bf16", "bf16"), ("fp32", "fp64"))
]


@pytest.mark.slow
def test_the_interpreted_kernel_follows_the_definition(run_interpreted: RunInterpreted) -> None:
    run_interpreted(TESTS)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_compiled_kernel_follows_the_definition(run_interpreted: RunInterpreted) -> None:
    run_interpreted(TESTS, interpret=False)


@pytest.mark.parametrize(("arch", "points", "matrices"), COMPILED)
def test_nothing_is_fused_and_divisions_are_true_ones(
    arch: int, points: str, matrices: str
) -> None:
    ptx = _compiled(arch, points, matrices).ptx
    assert not re.search(r"\bfma\.|\bmad\.\w*\.?f32|div\.(full|approx)", ptx)
    assert len(re.findall(r"\bdiv\.rn\.f32", ptx)) == 4 * A_THREADS_POINTS
    # Each point is scaled along three axes and multiplied by three rows of three; sm_100 has an
    # instruction for two products.
    products = re.findall(r"\bmul\.rn\.f32(x2)?\b", ptx)
    assert sum(2 if pair else 1 for pair in products) >= 12 * A_THREADS_POINTS
    assert not re.search(r"\b(mul|add)\.(ftz\.)?f32", ptx)  # without .rn the assembler may fuse


@pytest.mark.parametrize(("arch", "points", "matrices"), COMPILED)
def test_no_register_is_spilled_and_stores_are_vectors(
    arch: int, points: str, matrices: str
) -> None:
    code = _compiled(arch, points, matrices)
    assert code.stack == 0
    assert code.registers <= 64
    # Four points a thread: two stores of 16 bytes, and one of four flags.
    stores = re.findall(r"st\.global\.([\w.]+)", code.ptx)
    assert sorted(stores) == ["b32", "v2.b64", "v2.b64"]


@pytest.mark.parametrize("arch", AMD)
def test_amd_gpus_have_a_kernel_that_spills_nothing_and_fuses_nothing(arch: str) -> None:
    code = _compiled(arch, "fp32", "fp32")
    assert code.stack == 0
    assert code.count(r"^v_(fma|mac|fmac|mad)_f32") <= 8 * 4 * A_THREADS_POINTS  # in divisions


@cache
def _compiled(arch: int | str, points: str, matrices: str) -> Code:
    pointers = {
        "points_ptr": "*fp32",
        "visible_ptr": "*u8",
        "pillars_ptr": f"*{points}",
        "lidar2img_ptr": f"*{matrices}",
    }
    counts = ("batch", "cameras", "queries")
    return compiled(
        op._kernel,
        arch,
        lambda name: pointers.get(name, "i32" if name in counts else "fp32"),
        {"HEIGHTS": 4, "BLOCK": op.BLOCK},
        op.OPTIONS,
        divisible=("queries",),
    )
