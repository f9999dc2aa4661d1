"""The report of a packaged Group tells which backend of the kernels serves it."""

import pytest

torch = pytest.importorskip("torch")

# What a repository with BEVFormer's modules has, as far as two Groups look at it.
MODULES = "projects/mmdet3d_plugin/bevformer/modules"
FUNCTION = "multi_scale_deformable_attn_function"
SOURCE = """\
import torch
class MultiScaleDeformableAttnFunction_fp32(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, value_spatial_shapes, value_level_start_index, sampling_locations,
                attention_weights, im2col_step): ...
    @staticmethod
    def backward(ctx, grad_output): ...
class MultiScaleDeformableAttnFunction_fp16(MultiScaleDeformableAttnFunction_fp32):
    @staticmethod
    def forward(ctx, value, value_spatial_shapes, value_level_start_index, sampling_locations,
                attention_weights, im2col_step): ...
    @staticmethod
    def backward(ctx, grad_output): ...
"""
CONFIG = """\
schema_version: turbophysai/optimization-config/v1
kind: OptimizationConfig
metadata: {id: test, version: "1"}
optimization_modules: [turbo_physai.optimizations.bevformer.catalog]
optimization_groups: [{id: bevformer.msda}]
"""
SCRIPT = f"""
    report = apply()
    import {MODULES.replace("/", ".")}.{FUNCTION}
    assert state(report, "bevformer.msda") == "applied", str(report)
    print(*{{str(m.backend) for m in report.execution["bevformer.msda"].members}})
"""


@pytest.fixture
def model(project):
    project.write({f"{MODULES}/{FUNCTION}.py": SOURCE})
    (project.path / "optimization.yaml").write_text(CONFIG)
    return project


def test_a_fused_backend_serves_it_where_there_is_one(model):
    from turbo_physai.kernels import backends

    available = {b.name for b in backends() if b.op == "ms_deform_attn" and b.missing is None}
    if available == {"torch"}:
        pytest.skip("no fused backend here")
    expected = "triton" if torch.cuda.is_available() else "cpu"
    assert model.run(SCRIPT, TURBO_PHYSAI_STRICT="1") == f"{expected}\n"


def test_without_the_compiled_library_it_says_so_and_strict_mode_ends_it(model):
    off = {"TURBO_PHYSAI_KERNEL_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": ""}
    done = model.script(SCRIPT, **off)
    assert done.stdout.startswith("torch, which is not fused: ")
    assert "the Group bevformer.msda is applied, but not fused: torch serves it" in done.stderr
    model.script(SCRIPT, code=3, TURBO_PHYSAI_STRICT="1", **off)
