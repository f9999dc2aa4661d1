"""With the fused operators inside, an encoder layer is one graph."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from turbo_physai.optimizations.bevformer import attention as fused
from turbo_physai.optimizations.bevformer.options import SpatialCrossAttentionOptions
from turbo_physai.report.journal import read

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[3] / "examples" / "bevformer"
SMALL = ["--bev", "12", "--embed-dims", "32", "--encoder-layers", "2", "--queries", "80"]


def train(folder, *enabled, options=None):
    """Three steps of the example with these Groups on as well: losses, and the Groups' reports."""
    config = yaml.safe_load((EXAMPLE / "optimization.yaml").read_text())
    for entry in config["optimization_groups"]:
        if entry["id"] in enabled:
            entry |= {"enabled": True, "options": options or {}}
    (folder / "optimization.yaml").write_text(yaml.safe_dump(config))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "turbo_physai.run"),
            *("--optimization-config", str(folder / "optimization.yaml")),
            *(str(EXAMPLE / "train.py"), "--device", "cpu", "--steps", "3", *SMALL),
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1", "TURBO_PHYSAI_REPORT_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (report,) = folder.glob("report-*.json")
    groups = read(report)["execution"]
    report.unlink()
    return [float(x) for x in re.findall(r"^step \d+ loss (\S+)", done.stdout, re.M)], groups


def test_the_examples_encoder_has_no_graph_breaks_and_trains_the_same(tmp_path):
    compiled = ("bevformer.compile.encoder", "bevformer.compile.decoder")
    losses, groups = train(tmp_path, *compiled, options={"backend": "aot_eager"})
    encoder, decoder = (groups[id_] for id_ in compiled)
    told = encoder["members"][0]["metrics"]
    # The older frame of the queue is encoded in evaluation, the newer one in training. The first
    # layer's query has other strides than the others'.
    assert set(told) == {"eval without gradients", "train"}
    assert all(fact["graph_breaks"] == 0 and fact["graphs"] == 2 for fact in told.values())
    assert decoder["members"][0]["metrics"]["train"]["graphs"] >= 1
    assert encoder["warnings"] == decoder["warnings"] == []
    assert losses == pytest.approx(train(tmp_path)[0], rel=1e-5)


def test_a_compiled_layer_gives_what_it_gives_uncompiled(monkeypatch, same):
    from projects.mmdet3d_plugin.bevformer.modules import encoder, spatial_cross_attention
    from projects.mmdet3d_plugin.bevformer.modules.temporal_self_attention import (
        TemporalSelfAttention,
    )

    spatial = spatial_cross_attention.SpatialCrossAttention
    forward = fused.spatial_cross_attention_forward(spatial.forward, SpatialCrossAttentionOptions())
    monkeypatch.setattr(spatial, "forward", forward)
    monkeypatch.setattr(TemporalSelfAttention, "forward", fused.temporal_self_attention_forward)
    inner = spatial_cross_attention.MSDeformableAttention3D(32, 4, num_levels=1)
    layer = encoder.BEVFormerLayer(
        TemporalSelfAttention(32, 4, num_levels=1),
        spatial(32, 2, deformable_attention=inner),
        32,
        64,
    ).eval()
    arguments = {
        "query": torch.randn(1, 30, 32, requires_grad=True),
        "key": None,
        "value": torch.randn(2, 54, 1, 32),
        "bev_pos": torch.randn(1, 30, 32),
        "ref_2d": torch.rand(2, 30, 1, 2),
        "bev_h": 5,
        "bev_w": 6,
        "reference_points_cam": torch.rand(2, 1, 30, 4, 2),
        "bev_mask": torch.rand(2, 1, 30, 4) < 0.2,
        "spatial_shapes": torch.tensor([[6, 9]]),
        "level_start_index": torch.tensor([0]),
        "prev_bev": torch.randn(2, 30, 32),
    }
    whole = torch.compile(layer, fullgraph=True)
    same(
        layer,
        lambda: layer(**arguments),
        lambda: whole(**arguments),
        arguments["query"],
        rtol=1e-4,
    )
