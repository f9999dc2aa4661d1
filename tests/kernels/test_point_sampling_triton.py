"""The Triton kernel of point_sampling: interpreted, on a GPU if there is one, and its machine code.

The machine code needs no GPU: Triton brings the assembler and the disassemblers.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

if sys.platform != "linux":
    pytest.skip("Triton runs on Linux", allow_module_level=True)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from turbo_physai.kernels.ops import point_sampling_triton as op

RunChecks = Callable[..., None]
CHECKS = Path(__file__).with_name("triton_point_sampling_checks.py")
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
A_THREADS_POINTS = op.BLOCK // (32 * op.OPTIONS["num_warps"])
COMPILED = [
    pytest.param(arch, points, matrices, marks=() if arch == 90 else pytest.mark.slow)
    for arch in (80, 90, 100)
    for points, matrices in (("fp32", "fp32"), ("fp16", "fp32"), ("bf16", "bf16"), ("fp32", "fp64"))
]


def test_the_interpreted_kernel_has_the_bits_of_the_formulation(run_checks: RunChecks) -> None:
    run_checks(CHECKS, TRITON_INTERPRET="1")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_compiled_kernel_has_the_bits_of_the_formulation(run_checks: RunChecks) -> None:
    run_checks(CHECKS, TRITON_INTERPRET="0")


@pytest.mark.parametrize(("arch", "points", "matrices"), COMPILED)
def test_nothing_is_fused_and_divisions_are_true_ones(
    arch: int, points: str, matrices: str
) -> None:
    ptx, _ = _compiled(arch, points, matrices)
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
    ptx, usage = _compiled(arch, points, matrices)
    registers, stack = (int(re.search(rf"{f}:(\d+)", usage)[1]) for f in ("REG", "STACK"))
    assert stack == 0
    assert registers <= 64
    # Four points a thread: two stores of 16 bytes, and one of four flags.
    stores = re.findall(r"st\.global\.([\w.]+)", ptx)
    assert sorted(stores) == ["b32", "v2.b64", "v2.b64"]


@cache
def _compiled(arch: int, points: str, matrices: str) -> tuple[str, str]:
    """The PTX, and the resources that the machine code takes."""
    pointers = {
        "points_ptr": "*fp32",
        "visible_ptr": "*u8",
        "pillars_ptr": f"*{points}",
        "lidar2img_ptr": f"*{matrices}",
    }
    counts = ("batch", "cameras", "queries")
    signature = {
        name: pointers.get(name, "i32" if name in counts else "fp32")
        for name in op._kernel.arg_names
    }
    constants = {"HEIGHTS": 4, "BLOCK": op.BLOCK}
    signature.update(dict.fromkeys(constants, "constexpr"))
    aligned = {(index,): [["tt.divisibility", 16]] for index in range(len(pointers))}
    aligned[op._kernel.arg_names.index("queries"),] = [["tt.divisibility", 16]]
    source = ASTSource(op._kernel, signature, constants, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=op.OPTIONS)
    return compiled.asm["ptx"], _resources(compiled.asm["cubin"])


def _resources(cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run(
            [CUOBJDUMP, "-res-usage", file.name], check=True, capture_output=True, text=True
        ).stdout
