"""The Triton kernels of modulated_deform_conv2d compile for three architectures, without spills.

Needs no GPU: Triton brings the assembler and the disassemblers.
"""

from __future__ import annotations

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

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from turbo_physai.kernels.ops import _deform_conv_kernels as kernels
from turbo_physai.kernels.ops import modulated_deform_conv2d_triton as op
from turbo_physai.kernels.ops._deform_conv_geometry import Geometry

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
KERNELS = ("forward", "backward_data", "backward_weight")
ARCHES = (80, 90, 100)
OPERANDS = (("fp32", "ieee"), ("fp32", "tf32"), ("fp16", "ieee"), ("bf16", "ieee"))
WIDE = re.compile(r"\bLDG\S*\.(64|128)\b")


@dataclass(frozen=True)
class Case:
    kernel: str
    arch: int
    dtype: str
    precision: str = "ieee"
    channels: tuple[int, int] = (256, 256)
    groups: int = 1
    deform_groups: int = 1
    offsets: str | None = None  # the dtype of offset and mask, where it is another one
    out_last: bool = True

    def __str__(self) -> str:
        parts = [self.kernel, f"sm_{self.arch}", self.dtype, self.precision]
        parts += [f"{self.channels[0]}-{self.channels[1]}"]
        parts += [f"{self.groups}-{self.deform_groups}-groups"] if self != self._plain() else []
        return "-".join(parts) + ("" if self.out_last else "-nchw")

    def _plain(self) -> Case:
        return Case(self.kernel, self.arch, self.dtype, self.precision, self.channels)


@dataclass(frozen=True)
class Code:
    """What the disassembler shows of one kernel."""

    registers: int
    stack: int
    instructions: tuple[str, ...]

    def count(self, pattern: str) -> int:
        return sum(bool(re.search(pattern, line)) for line in self.instructions)


# Stage 3 of BEVFormer's backbone on every target, then what else there may be on one.
BACKBONE = [Case(k, arch, *operands) for k in KERNELS for arch in ARCHES for operands in OPERANDS]
OTHERS = [
    *(Case(k, 90, t, channels=(512, 512)) for k in KERNELS for t in ("fp32", "bf16")),
    *(Case(k, 90, "bf16", channels=(12, 4), groups=2, deform_groups=3) for k in KERNELS),
    *(Case(k, 90, "fp16", offsets="fp32") for k in KERNELS),
    Case("forward", 90, "fp32", out_last=False),
    Case("forward", 80, "bf16", out_last=False),
]
QUICK = [Case(k, 90, "bf16") for k in KERNELS]
ALL = [
    pytest.param(case, id=str(case), marks=() if case in QUICK else pytest.mark.slow)
    for case in BACKBONE + OTHERS
]


@pytest.mark.parametrize("case", ALL)
def test_no_register_is_spilled(case: Case) -> None:
    code = disassembled(case)
    assert code.stack == 0
    assert code.count(r"\b(LDL|STL)\b") == 0


@pytest.mark.parametrize("case", ALL)
def test_sums_need_no_compare_and_swap(case: Case) -> None:
    code = disassembled(case)
    assert code.count(r"\bCAS\b|\.CAS\.|\.CAST\.") == 0
    assert (code.count(r"\bREDG?\.E\.ADD") > 0) == (case.kernel != "forward")


@pytest.mark.parametrize("case", [p for p in ALL if p.values[0] in BACKBONE])
def test_channels_are_read_and_added_to_in_vectors(case: Case) -> None:
    code = disassembled(case)
    assert sum(bool(WIDE.search(line)) for line in code.instructions) >= 4  # a sample's corners
    if case.arch >= 90 and case.kernel != "forward":
        adds = [line for line in code.instructions if re.search(r"\bREDG?\.E\.ADD", line)]
        assert all("F32x4" in line for line in adds)


@pytest.mark.parametrize("case", [p for p in ALL if p.values[0] in BACKBONE])
def test_products_run_on_tensor_cores_unless_they_must_be_exact(case: Case) -> None:
    exact = (case.dtype, case.precision) == ("fp32", "ieee")
    assert (disassembled(case).count(r"^\S*\s*(@\S+\s+)?\w*(HMMA|HGMMA|UTC\w*MMA)") == 0) == exact


@cache
def disassembled(case: Case) -> Code:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(_compiled(case))
        file.flush()
        usage = _tool("cuobjdump", "-res-usage", file.name)
        text = _tool("nvdisasm", "-c", file.name)
    registers, stack = (int(re.search(rf"{field}:(\d+)", usage)[1]) for field in ("REG", "STACK"))
    instructions = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", text)
    return Code(registers, stack, tuple(instructions))


def _compiled(case: Case) -> bytes:
    kernel = getattr(kernels, f"{case.kernel}_kernel")
    geometry = Geometry((1, 1), (1, 1), (1, 1), case.groups, case.deform_groups)
    constants = op.constants(case.channels, (3, 3), geometry, case.precision)
    options = op.OPTIONS
    if case.kernel == "forward":
        constants["OUT_LAST"] = case.out_last
    elif case.kernel == "backward_data":
        constants, options = op.of_data(constants), op.OPTIONS_OF_DATA
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
    return triton.compile(source, target=target, options=options).asm["cubin"]


def _type(argument: str, case: Case) -> str:
    if not argument.endswith("_ptr"):
        return "i32"
    if argument.endswith("sums_ptr"):
        return "*fp32"
    if "offset" in argument or "mask" in argument:
        return f"*{case.offsets or case.dtype}"
    return f"*{case.dtype}"


def _tool(name: str, *arguments: str) -> str:
    return subprocess.run(
        [TOOLS / name, *arguments], check=True, capture_output=True, text=True
    ).stdout
