"""The Triton kernels of modulated_deform_conv2d compile for three architectures, without spills.

Needs no GPU: Triton brings the assembler and the disassemblers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import pytest

pytest.importorskip("triton", "3.6", reason="Triton runs on Linux")

from kernel_machine_code import AMD, NVIDIA, Code, compiled
from turbo_physai.kernels.ops.modulated_deform_conv2d import _triton as op
from turbo_physai.kernels.ops.modulated_deform_conv2d import _triton_kernels as kernels
from turbo_physai.kernels.ops.modulated_deform_conv2d._geometry import Geometry

KERNELS = ("forward", "backward_data", "backward_weight")
OPERANDS = (("fp32", "ieee"), ("fp32", "tf32"), ("fp16", "ieee"), ("bf16", "ieee"))
WIDE = re.compile(r"\bLDG\S*\.(64|128)\b")


@dataclass(frozen=True)
class Case:
    kernel: str
    arch: int | str
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


# Stage 3 of BEVFormer's backbone on every target, then what else there may be on one.
BACKBONE = [Case(k, arch, *operands) for k in KERNELS for arch in NVIDIA for operands in OPERANDS]
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


@pytest.mark.slow
@pytest.mark.parametrize("arch", AMD)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_amd_gpus_have_kernels_that_spill_nothing(kernel: str, dtype: str, arch: str) -> None:
    assert disassembled(Case(kernel, arch, dtype)).stack == 0


@cache
def disassembled(case: Case) -> Code:
    kernel = getattr(kernels, f"{case.kernel}_kernel")
    pair = (1, 1)
    geometry = Geometry((64, 64), (3, 3), pair, pair, pair, case.groups, case.deform_groups)
    constants = op.constants(case.channels, geometry, case.precision)
    of_data = case.kernel == "backward_data"
    if case.kernel == "forward":
        constants["OUT_LAST"] = case.out_last
    elif of_data:
        constants = op.of_data(constants)
    options = op.options(of_data=of_data, hip=isinstance(case.arch, str))
    return compiled(kernel, case.arch, lambda name: _type(name, case), constants, options)


def _type(argument: str, case: Case) -> str:
    if not argument.endswith("_ptr"):
        return "i32"
    if argument.endswith("sums_ptr"):
        return "*fp32"
    if "offset" in argument or "mask" in argument:
        return f"*{case.offsets or case.dtype}"
    return f"*{case.dtype}"
