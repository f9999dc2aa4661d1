"""Every Triton kernel compiles for three architectures, and its machine code is what was meant.

Needs no GPU: Triton brings the assembler and the disassemblers. Code generation differs between
Tritons, so lengths are compared with `triton_instructions.json` only for the versions listed there.
After a change that is meant, rewrite the entries of the installed Triton with

    python tests/kernels/test_triton_compile.py
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("Triton runs on Linux", allow_module_level=True)

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from turbo_physai.kernels.ops import _triton_launch as launch
from turbo_physai.kernels.ops import (
    _triton_spatial_cross_attention,
    ms_deform_attn_triton,
    temporal_self_attention_triton,
)
from turbo_physai.kernels.ops._triton_attention import softmax_chunk

TABLE = Path(__file__).with_name("triton_instructions.json")
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
OPERATORS = {
    "ms_deform_attn": {
        "forward": ms_deform_attn_triton._forward_kernel,
        "backward": ms_deform_attn_triton._backward_kernel,
    },
    "spatial_cross_attention": {
        "forward": _triton_spatial_cross_attention.forward_kernel,
        "backward": _triton_spatial_cross_attention.backward_kernel,
    },
    "temporal_self_attention": {
        "forward": temporal_self_attention_triton._forward_kernel,
        "backward": temporal_self_attention_triton._backward_kernel,
    },
}
KERNELS = ("forward", "backward")
ARCHES = (80, 90, 100)
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Case:
    kernel: str
    arch: int
    dtype: str
    head_dim: int = 32
    deterministic: bool = False
    locations: str | None = None  # the dtype of locations and weights, where it is another one
    operator: str = "ms_deform_attn"
    many_cameras: bool = False  # so that they are taken in groups; of the first item

    @property
    def most_registers(self) -> int:
        """Triton 3.9 adds single numbers in other threads than it loads: that takes registers."""
        if self.kernel == "forward":
            return 64
        plain = not (self.deterministic or self.many_cameras)
        return 128 if self.arch >= 90 and plain else 255

    def __str__(self) -> str:
        name = "" if self.operator == "ms_deform_attn" else f"{self.operator}-"
        name += f"{self.kernel}-sm_{self.arch}-{self.dtype}-{self.head_dim}"
        name += f"-{self.locations}-locations" if self.locations else ""
        name += "-many_cameras" if self.many_cameras else ""
        return name + ("-deterministic" if self.deterministic else "")


@dataclass(frozen=True)
class Code:
    """What the disassembler shows of one kernel."""

    registers: int
    stack: int
    shared: int
    instructions: tuple[str, ...]
    sample: tuple[str, ...]  # those of the innermost loop: one point of every row a thread has

    def count(self, pattern: str) -> int:
        return sum(bool(re.search(pattern, line)) for line in self.instructions)


# The shapes of BEVFormer on every target, then the narrow, the odd and the wide heads on one.
# Levels and points are arguments, and change no code.
BEVFORMER = [
    Case(k, arch, dtype, operator=operator)
    for operator in OPERATORS
    for k in KERNELS
    for arch in ARCHES
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
        *(Case("backward", arch, "fp32", deterministic=True, operator=operator) for arch in ARCHES),
        Case("backward", 90, "bf16", 256, deterministic=True, operator=operator),
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
    assert (code.count(r"\bREDG?\.E\.ADD") > 0) == (case.kernel == "backward")


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


@cache
def disassembled(case: Case) -> Code:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(_compiled(case))
        file.flush()
        usage = _tool("cuobjdump", "-res-usage", file.name)
        text = _tool("nvdisasm", "-c", file.name)
    registers, stack, shared = (
        int(re.search(rf"{field}:(\d+)", usage)[1]) for field in ("REG", "STACK", "SHARED")
    )
    instructions, loops = _read(text)
    # The innermost loop: the shortest of those that round a position down.
    sample = min((loop for loop in loops if any("FLOOR" in line for line in loop)), key=len)
    return Code(registers, stack, shared, instructions, sample)


def _compiled(case: Case) -> bytes:
    kernel = OPERATORS[case.operator][case.kernel]
    size = launch.default_size(case.kernel, case.head_dim)
    if case.deterministic:
        size = launch.deterministic_size(size)
    # Of BEVFormer: six cameras, 32 samples over cameras and 4 over time.
    constants = {
        "FIRST_ITEM": case.many_cameras,
        "GROUPS": 3 if case.many_cameras else 1,
        "CAMERAS": 8,
        "CHUNK": softmax_chunk(32 if case.operator == "spatial_cross_attention" else 4, size),
        "HEADS": 8,
        **size.tile(case.kernel, torch.empty(case.head_dim, dtype=DTYPES[case.dtype])),
    }
    if not case.deterministic:
        constants["steps_ptr"] = None
    constants = {name: constants[name] for name in kernel.arg_names if name in constants}
    signature = {
        name: "constexpr" if name in constants else _type(name, case) for name in kernel.arg_names
    }
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*")
    }
    source = ASTSource(kernel, signature, constants, aligned)
    target = GPUTarget("cuda", case.arch, 32)
    return triton.compile(source, target=target, options=size.options()).asm["cubin"]


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


def _tool(name: str, *arguments: str) -> str:
    return subprocess.run(
        [TOOLS / name, *arguments], check=True, capture_output=True, text=True
    ).stdout


def _read(text: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """All instructions of a disassembly, and those of every loop: from a label to the jump back."""
    instructions: list[str] = []
    labels: dict[str, int] = {}
    loops = []
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(instructions)
        elif instruction := re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            instructions.append(instruction[1])
            jump = re.search(r"\bBRA\b.*?(\.L_x_\d+)", instruction[1])
            if jump and jump[1] in labels:
                loops.append(tuple(instructions[labels[jump[1]] :]))
    return tuple(instructions), loops


def _rewrite_table() -> None:
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    codes = {case: disassembled(case) for case in BEVFORMER}
    table[triton.__version__] = {str(case): len(code.sample) for case, code in codes.items()}
    TABLE.write_text(json.dumps(dict(sorted(table.items())), indent=2) + "\n")
    for case, code in codes.items():
        print(f"{case}: {code.registers} registers, {len(code.sample)} instructions in the loop")


if __name__ == "__main__":
    _rewrite_table()
