"""The attention operators' Triton kernels compile, and their machine code is what was meant.

Needs no GPU. Code generation differs between Tritons, so lengths are compared with
`triton_instructions.json` only for the versions listed there. After a change that is meant, rewrite
the entries of the installed Triton with

    python tests/kernels/attention/test_compile.py
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("triton", "3.6", reason="Triton runs on Linux")

import torch
import triton

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # when run as a script

from kernel_machine_code import AMD, NVIDIA, Code, compiled
from turbo_physai.kernels.common.triton import launch
from turbo_physai.kernels.common.triton.attention import softmax_chunk
from turbo_physai.kernels.ops.ms_deform_attn import _triton as ms_deform_attn
from turbo_physai.kernels.ops.spatial_cross_attention import _triton as spatial_cross_attention
from turbo_physai.kernels.ops.temporal_self_attention import _triton as temporal_self_attention

TABLE = Path(__file__).with_name("triton_instructions.json")
OPERATORS = {
    module.KERNELS.name: {
        "forward": module.KERNELS.forward_kernel,
        "backward": module.KERNELS.backward_kernel,
    }
    for module in (ms_deform_attn, spatial_cross_attention, temporal_self_attention)
}
KERNELS = ("forward", "backward")
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Case:
    kernel: str
    arch: int | str
    dtype: str
    head_dim: int = 32
    deterministic: bool = False
    locations: str | None = None  # the dtype of locations and weights, where it is another one
    operator: str = "ms_deform_attn"
    many_cameras: bool = False  # so that they are taken in groups; of the first item
    frozen: bool = False  # no gradient of the value

    @property
    def most_registers(self) -> int:
        """Triton 3.9 adds single numbers in other threads than it loads: that takes registers."""
        if self.kernel == "forward":
            return 64
        plain = not (self.deterministic or self.many_cameras)
        return 128 if self.arch >= 90 and plain else 255

    def __str__(self) -> str:
        name = "" if self.operator == "ms_deform_attn" else f"{self.operator}-"
        arch = self.arch if isinstance(self.arch, str) else f"sm_{self.arch}"
        name += f"{self.kernel}-{arch}-{self.dtype}-{self.head_dim}"
        name += f"-{self.locations}-locations" if self.locations else ""
        name += "-many_cameras" if self.many_cameras else ""
        name += "-frozen" if self.frozen else ""
        return name + ("-deterministic" if self.deterministic else "")


# The shapes of BEVFormer on every target, then the narrow, the odd and the wide heads on one.
# Levels and points are arguments, and change no code.
BEVFORMER = [
    Case(k, arch, dtype, operator=operator)
    for operator in OPERATORS
    for k in KERNELS
    for arch in NVIDIA
    for dtype in DTYPES
]
OTHERS = [
    case
    for operator in OPERATORS
    for case in (
        *(
            Case(k, 90, dtype, dim, operator=operator)
            for k in KERNELS
            for dtype, dim in itertools.product(("fp32", "bf16"), (4, 12, 64, 256))
        ),
        *(Case(k, 90, "bf16", locations="fp32", operator=operator) for k in KERNELS),
        *(Case("backward", arch, "fp32", deterministic=True, operator=operator) for arch in NVIDIA),
        Case("backward", 90, "bf16", 256, deterministic=True, operator=operator),
        Case("backward", 90, "fp32", frozen=True, operator=operator),
    )
] + [Case(k, 90, "fp32", operator="spatial_cross_attention", many_cameras=True) for k in KERNELS]
QUICK = [
    Case(k, 90, dtype, operator=o) for o in OPERATORS for k in KERNELS for dtype in ("fp32", "bf16")
]
ALL = [
    pytest.param(case, id=str(case), marks=() if case in QUICK else pytest.mark.slow)
    for case in BEVFORMER + OTHERS
]


@pytest.mark.parametrize("case", ALL)
def test_no_register_is_spilled_and_enough_programs_fit(case: Case) -> None:
    code = disassembled(case)
    # Other shapes may leave a pointer or two on the stack, but not in the loop.
    assert code.stack <= (0 if case in BEVFORMER else 16)
    assert code.count(r"\b(LDL|STL)\b") == 0 or case not in BEVFORMER
    assert not [line for line in code.sample if re.search(r"\b(LDL|STL)\b", line)]
    assert code.registers <= case.most_registers
    assert code.shared <= 4096


@pytest.mark.parametrize("case", ALL)
def test_sums_need_no_compare_and_swap(case: Case) -> None:
    code = disassembled(case)
    assert code.count(r"\bCAS\b|\.CAS\.|\.CAST\.") == 0
    adds = case.kernel == "backward" and not case.frozen
    assert (code.count(r"\bREDG?\.E\.ADD") > 0) == adds


@pytest.mark.parametrize("case", [p for p in ALL if p.values[0] in BEVFORMER])
def test_memory_is_accessed_in_vectors(case: Case) -> None:
    code = disassembled(case)
    # Backward, 16-bit values are read in fours, to sit in the threads that add them up in float32.
    in_fours = case.kernel == "backward" and case.dtype != "fp32"
    gather = r"\bLDG\.E\.64\b" if in_fours else r"\bLDG\.E\.128\b"
    gathers = [line for line in code.sample if re.search(gather, line)]
    assert len(gathers) >= 4
    if case.kernel == "backward" and case.arch >= 90:
        adds = [line for line in code.sample if re.search(r"\bREDG?\.", line)]
        assert len(adds) == 8
        # A reference point, which the loop over cameras reads, is as wide as four 16-bit values.
        one_more = in_fours and case.operator == "spatial_cross_attention"
        assert len(gathers) == 8 + one_more
        assert all("F32x4" in line for line in adds)


@pytest.mark.parametrize("case", [p for p in ALL if p.values[0] in BEVFORMER])
def test_threads_do_not_wait_for_each_other_in_the_loop(case: Case) -> None:
    if case.kernel == "backward" and case.arch < 90:
        pytest.skip("on sm_80, additions take other threads than loads: one number a thread")
    assert not [line for line in disassembled(case).sample if re.search(r"\bBAR\b", line)]


@pytest.mark.parametrize("case", [p for p in ALL if p.values[0] in BEVFORMER])
def test_a_sample_takes_as_many_instructions_as_it_did(case: Case) -> None:
    stored = json.loads(TABLE.read_text()).get(triton.__version__)
    if stored is None:
        pytest.skip(f"{TABLE.name} has no entry for Triton {triton.__version__}")
    assert len(disassembled(case).sample) == pytest.approx(stored[str(case)], rel=0.1)


AMD_CASES = [
    Case(k, arch, dtype, operator=operator)
    for operator in OPERATORS
    for k in KERNELS
    for arch in AMD
    for dtype in ("fp32", "bf16")
]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=str(case),
            marks=() if case.arch == "gfx942" and case.dtype == "fp32" else pytest.mark.slow,
        )
        for case in AMD_CASES
    ],
)
def test_amd_gpus_have_kernels_that_spill_nothing(case: Case) -> None:
    code = disassembled(case)
    assert code.stack == 0
    assert code.registers <= 256
    adds, loops = code.count(r"^global_atomic_(pk_)?add_f"), code.count(r"cmpswap")
    if case.kernel == "forward":
        assert (adds, loops) == (0, 0)
    elif case.arch == "gfx942":
        assert adds >= 4
        assert loops == 0
    else:  # Triton adds by compare-and-swap there
        assert adds + loops >= 4


@cache
def disassembled(case: Case) -> Code:
    kernel = OPERATORS[case.operator][case.kernel]
    hip = isinstance(case.arch, str)
    warp = 64 if hip else 32
    size = launch.default_size(case.kernel, case.head_dim, warp)
    if case.deterministic:
        size = launch.deterministic_size(size)
    # Of BEVFormer: six cameras, 32 samples over cameras and 4 over time.
    constants = {
        "FIRST_ITEM": case.many_cameras,
        "GROUPS": 3 if case.many_cameras else 1,
        "CAMERAS": 8,
        "CHUNK": softmax_chunk(32 if case.operator == "spatial_cross_attention" else 4, size),
        "HEADS": 8,
        **size.tile(case.kernel, torch.empty(case.head_dim, dtype=DTYPES[case.dtype]), warp),
    }
    if not case.deterministic:
        constants["steps_ptr"] = None
    if case.frozen:
        constants["grad_value_ptr"] = None
    return compiled(kernel, case.arch, lambda name: _type(name, case), constants, size.options(hip))


def _type(argument: str, case: Case) -> str:
    if not argument.endswith("_ptr"):
        return "i32"
    name = argument.removesuffix("_ptr")
    if name in ("shapes", "starts"):
        return "*i64"
    if name == "grad_value":
        return "*i64" if case.deterministic else "*fp32"
    if name == "visibility":
        return "*u8"
    if name in ("references", "steps") or (
        name == "grad_weights" and case.operator != "ms_deform_attn"
    ):
        return "*fp32"
    if name in ("out", "value", "grad_out"):
        return f"*{case.dtype}"
    return f"*{case.locations or case.dtype}"


def _rewrite_table() -> None:
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    codes = {case: disassembled(case) for case in BEVFORMER}
    table[triton.__version__] = {str(case): len(code.sample) for case, code in codes.items()}
    TABLE.write_text(json.dumps(dict(sorted(table.items())), indent=2) + "\n")
    for case, code in codes.items():
        print(f"{case}: {code.registers} registers, {len(code.sample)} instructions in the loop")


if __name__ == "__main__":
    _rewrite_table()
