"""The Triton kernels of bev_pool compile for NVIDIA's and AMD's GPUs, and spill nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", "3.6", reason="Triton runs on Linux")

from kernel_machine_code import AMD, NVIDIA, compiled
from turbo_physai.kernels.common.triton import launch
from turbo_physai.kernels.ops.bev_pool import _triton as op


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("arch", [*NVIDIA, *AMD])
@pytest.mark.parametrize("kernel", [op.forward_kernel, op.backward_kernel], ids=["fwd", "bwd"])
def test_nothing_spills(kernel, arch, dtype):
    integers = ("geometry_ptr", "lengths_ptr", "starts_ptr")

    def type_of(name):
        return "*i32" if name in integers else f"*{dtype}" if name.endswith("_ptr") else "i32"

    options = launch.options(1, hip=isinstance(arch, str))
    code = compiled(kernel, arch, type_of, op.constants(80), options)
    assert code.stack == 0
    assert code.registers <= 128
    assert code.shared <= 4096
