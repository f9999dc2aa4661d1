"""The optimizer gets torch's fused kernel, and the backbone another layout: the same numbers."""

import copy

import pytest
import torch
from torch import nn

from turbo_physai.optimizations.bevformer.options import TrainingOptions
from turbo_physai.optimizations.bevformer.training import build_optimizer, initialize


def as_mmcv_does(model, cfg):
    settings = copy.deepcopy(cfg)
    return getattr(torch.optim, settings.pop("type"))(model.parameters(), **settings)


def steps(optimizer, model):
    for step in range(3):
        optimizer.zero_grad()
        x = torch.linspace(-1, 1, 8).view(2, 4) * (step + 1)
        model(x).square().sum().backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("type_", ["AdamW", "Adam", "SGD"])
def test_a_fused_optimizer_takes_the_same_steps(type_):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    other = copy.deepcopy(model)
    cfg = {"type": type_, "lr": 0.01, "weight_decay": 0.01}
    fused = build_optimizer(as_mmcv_does, TrainingOptions())(model, cfg)
    assert fused.defaults["fused"] is True
    assert "fused" not in cfg
    expected = steps(as_mmcv_does(other, cfg), other)
    for actual, wanted in zip(steps(fused, model), expected, strict=True):
        torch.testing.assert_close(actual, wanted)


def resumed(optimizer, state):
    optimizer.load_state_dict(copy.deepcopy(state))
    return optimizer


@pytest.mark.parametrize("type_", ["AdamW", "Adam", "SGD", "Adagrad"])
def test_a_training_is_resumed_with_the_kernel_and_saved_without_it(type_):
    cfg = {"type": type_, "lr": 0.01} | ({"momentum": 0.9} if type_ == "SGD" else {})
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    fuse = build_optimizer(as_mmcv_does, TrainingOptions())
    optimizer = as_mmcv_does(model, cfg)
    steps(optimizer, model)
    saved, copies = optimizer.state_dict(), [copy.deepcopy(model) for _ in range(3)]

    ours = resumed(fuse(copies[0], cfg), saved)
    assert [group["fused"] for group in ours.param_groups] == [True]
    expected = steps(optimizer, model)
    for actual, wanted in zip(steps(ours, copies[0]), expected, strict=True):
        torch.testing.assert_close(actual, wanted)

    mine = ours.state_dict()
    assert [group["fused"] for group in mine["param_groups"]] == [None]
    assert [group["fused"] for group in ours.param_groups] == [True]
    plain = resumed(as_mmcv_does(copies[0], cfg), mine)
    assert not plain.param_groups[0]["fused"]
    for actual, wanted in zip(steps(plain, copies[0]), steps(optimizer, model), strict=True):
        torch.testing.assert_close(actual, wanted)


def test_a_state_that_is_loaded_is_not_changed():
    model = nn.Linear(2, 2)
    state = as_mmcv_does(model, {"type": "SGD", "lr": 0.1}).state_dict()
    before = copy.deepcopy(state)
    build_optimizer(as_mmcv_does, TrainingOptions())(
        model, {"type": "SGD", "lr": 0.1}
    ).load_state_dict(state)
    assert state == before


@pytest.mark.parametrize(
    ("cfg", "options"),
    [
        ({"type": "AdamW", "fused": False}, {}),
        ({"type": "AdamW", "foreach": True}, {}),
        ({"type": "RMSprop"}, {}),
        ({"type": "AdamW"}, {"fused_optimizer": False}),
    ],
)
def test_a_choice_that_was_made_is_kept(cfg, options):
    model = nn.Linear(2, 2)
    made = build_optimizer(as_mmcv_does, TrainingOptions(**options))(model, {**cfg, "lr": 0.1})
    assert not made.defaults.get("fused")


class Detector(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.img_backbone = nn.Conv2d(3, width, 3, padding=1)
        self.img_neck = None
        self.head = nn.Conv2d(width, 1, 3)

    def forward(self, x):
        return self.head(self.img_backbone(x))


def test_the_backbone_computes_the_same_in_another_layout(monkeypatch):
    torch.manual_seed(1)
    x = torch.randn(2, 3, 9, 9)
    plain = Detector(8)
    monkeypatch.setattr(
        Detector, "__init__", initialize(Detector.__init__, TrainingOptions(channels_last=True))
    )
    laid_out = Detector(8)
    laid_out.load_state_dict(plain.state_dict())
    assert laid_out.img_backbone.weight.is_contiguous(memory_format=torch.channels_last)
    assert laid_out.head.weight.is_contiguous()
    torch.testing.assert_close(laid_out(x), plain(x))


def test_the_layout_is_left_alone_unless_asked_for():
    assert initialize(Detector.__init__, TrainingOptions()) is Detector.__init__
