"""The attention Function runs fused, or whole on its own code where the operator has a limit."""

import os
import subprocess
import sys

import pytest

from turbo_physai.report.journal import read

from .conftest import EXAMPLE

SCRIPT = """
import turbo_physai
turbo_physai.apply(optimization_config_path={config!r})
import sys
sys.path.insert(0, {example!r})
import torch
from projects.mmdet3d_plugin.bevformer.modules import multi_scale_deformable_attn_function as module

called = []
original = torch.nn.functional.grid_sample
torch.nn.functional.grid_sample = lambda *a, **k: called.append(1) or original(*a, **k)
shapes, starts = torch.tensor([[4, 5], [2, 3]]), torch.tensor([0, 20])
value = torch.randn(1, 26, 2, {dim}, requires_grad=True)
locations = torch.rand(1, 7, 2, 2, 3, 2, requires_grad=True)
weights = torch.rand(1, 7, 2, 2, 3, requires_grad=True)
out = module.MultiScaleDeformableAttnFunction_fp32.apply(
    value, shapes, starts, locations, weights, 64
)
out.sum().backward()
print(tuple(out.shape), value.grad.abs().sum().item() > 0, len(called))
"""


@pytest.mark.parametrize(("dim", "calls"), [(8, 0), (6, 2)])
def test_heads_of_another_width_take_the_original_forward_and_backward(tmp_path, dim, calls):
    config = str(EXAMPLE / "optimization.yaml")
    script = SCRIPT.format(config=config, example=str(EXAMPLE), dim=dim)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"TURBO_PHYSAI_REPORT_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"(1, 7, {2 * dim}) True {calls}\n"
    (report,) = tmp_path.glob("report-*.json")
    assert read(report)["execution"]["bevformer.msda"]["state"] == "applied"
