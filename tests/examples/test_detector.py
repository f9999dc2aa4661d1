"""The whole model: losses, gradients, and all attention through one Function."""

import pytest
import torch
from model import ModelConfig, build_model
from projects.mmdet3d_plugin.bevformer.modules.multi_scale_deformable_attn_function import (
    MultiScaleDeformableAttnFunction_fp32,
)
from projects.mmdet3d_plugin.datasets.frame import collate
from projects.mmdet3d_plugin.datasets.synthetic import make_frames

SMALL = {"bev": 8, "embed_dims": 16, "heads": 4, "encoder_layers": 2, "queries": 30}


@pytest.fixture(scope="module")
def sample():
    return collate(make_frames(1, 0.08))


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_every_parameter_gets_a_gradient(levels, sample):
    model = build_model(ModelConfig(levels=levels, **SMALL)).train()
    losses = model(**sample)
    assert set(losses) == {"d0.loss_cls", "d0.loss_bbox", "loss_cls", "loss_bbox"}
    sum(losses.values()).backward()
    missing = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert missing == []


def test_the_previous_frame_matters(sample):
    model = build_model(ModelConfig(**SMALL)).eval()
    img, metas = sample["img"], sample["img_metas"]
    model.train = lambda mode=True: model  # no dropout, no grid mask: differences have one cause
    losses = model(**sample)
    again = model(**sample)
    other = model(**sample | {"img": torch.cat([img[:, :1].flip(-1), img[:, 1:]], 1)})
    alone = model(
        **sample | {"img": img[:, 1:], "img_metas": [[metas[0][1] | {"prev_bev_exists": False}]]}
    )
    assert again == losses
    assert other["loss_cls"] != losses["loss_cls"]
    assert alone["loss_cls"] != losses["loss_cls"]


def test_the_history_is_encoded_in_eval_mode_without_gradients(sample):
    model = build_model(ModelConfig(**SMALL)).train()
    first, second = (
        model.obtain_history_bev(sample["img"][:, :-1], sample["img_metas"]) for _ in range(2)
    )
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert model.training


def test_all_deformable_attention_goes_through_the_fp32_function(sample, monkeypatch):
    calls = []
    original = MultiScaleDeformableAttnFunction_fp32.forward

    def forward(ctx, *args):
        calls.append(len(args))
        return original(ctx, *args)

    monkeypatch.setattr(MultiScaleDeformableAttnFunction_fp32, "forward", staticmethod(forward))
    config = ModelConfig(**SMALL)
    build_model(config).train()(**sample)
    encoder = 2 * config.encoder_layers  # temporal and spatial
    assert calls == [6] * (2 * encoder + config.decoder_layers)
