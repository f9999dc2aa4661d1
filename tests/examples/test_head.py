"""Box code, matching and losses."""

import itertools

import pytest
import torch
from projects.mmdet3d_plugin.bevformer.dense_heads.bevformer_head import (
    CODE_WEIGHTS,
    BEVFormerHead,
    sigmoid_focal_loss,
)
from projects.mmdet3d_plugin.core.bbox.assigners.hungarian_assigner_3d import HungarianAssigner3D
from projects.mmdet3d_plugin.core.bbox.util import denormalize_bbox, normalize_bbox

CLASSES = 4


def make_boxes(count):
    centre = torch.empty(count, 3).uniform_(-5, 5)
    size = torch.empty(count, 3).uniform_(0.5, 5)
    yaw = torch.empty(count, 1).uniform_(-3, 3)
    return torch.cat([centre, size, yaw, torch.randn(count, 2)], -1)


@pytest.fixture
def head():
    from model import ModelConfig, build_model

    config = ModelConfig(bev=4, embed_dims=16, heads=4, encoder_layers=1, queries=9)
    head = build_model(config).pts_bbox_head
    assert isinstance(head, BEVFormerHead)
    return head


def test_the_box_code_can_be_undone():
    boxes = make_boxes(20)
    code = normalize_bbox(boxes)
    assert code.shape == (20, 10)
    torch.testing.assert_close(denormalize_bbox(code), boxes)


def test_focal_loss_is_its_formula():
    logits = torch.randn(50, dtype=torch.float64)
    target = (torch.rand(50) > 0.5).double()
    p = logits.sigmoid()
    hit = -0.25 * (1 - p) ** 2 * p.log()
    miss = -0.75 * p**2 * (1 - p).log()
    expected = torch.where(target > 0, hit, miss)
    torch.testing.assert_close(sigmoid_focal_loss(logits, target), expected)


def test_the_matching_has_the_least_cost_of_all():
    boxes, labels = make_boxes(3), torch.randint(CLASSES, (3,))
    code, logits = normalize_bbox(make_boxes(5)), torch.randn(5, CLASSES)
    p = logits.sigmoid()
    focal = 0.25 * (1 - p) ** 2 * -p.log() - 0.75 * p**2 * -(1 - p).log()
    apart = (code[:, None] - normalize_bbox(boxes)[None]).abs()
    distance = torch.where(apart < 0.1, apart**2 / 0.2, apart - 0.05) @ torch.tensor(CODE_WEIGHTS)
    cost = 2.0 * focal[:, labels] + 0.25 * distance

    rows, columns = HungarianAssigner3D(CODE_WEIGHTS).assign(code, logits, boxes, labels)

    best = min(cost[list(choice), range(3)].sum() for choice in itertools.permutations(range(5), 3))
    assert sorted(columns.tolist()) == [0, 1, 2]
    assert len(set(rows.tolist())) == 3
    torch.testing.assert_close(cost[rows, columns].sum(), best)


def test_right_predictions_are_matched_to_themselves():
    boxes, labels = make_boxes(6), torch.randint(CLASSES, (6,))
    order = torch.randperm(6)
    logits = torch.zeros(6, CLASSES)
    rows, columns = HungarianAssigner3D(CODE_WEIGHTS).assign(
        normalize_bbox(boxes)[order], logits, boxes, labels
    )
    assert torch.equal(order[rows], columns)


def test_predictions_have_the_code_in_metres(head):
    code, reference = torch.zeros(1, 2, 10), torch.tensor([[[0.5, 0.5, 0.5], [0.75, 0.25, 0.125]]])
    placed = head._to_metres(code, reference)
    torch.testing.assert_close(placed[0, 0, [0, 1, 4]], torch.tensor([0.0, 0.0, -1.0]))
    torch.testing.assert_close(placed[0, 1, [0, 1, 4]], torch.tensor([25.6, -25.6, -4.0]))


def predict(boxes, labels, layers=2, spare=3):
    """Predictions that hit every box and spare ones that claim nothing."""
    logits = torch.full((layers, 1, len(boxes) + spare, 10), -20.0)
    logits[:, 0, range(len(boxes)), labels] = 20.0
    code = torch.zeros(layers, 1, len(boxes) + spare, 10)
    code[:, 0, : len(boxes)] = normalize_bbox(boxes)
    return {"all_cls_scores": logits, "all_bbox_preds": code}


def test_perfect_predictions_cost_nothing_in_any_layer(head):
    boxes, labels = make_boxes(4), torch.randint(10, (4,))
    losses = head.loss([boxes], [labels], predict(boxes, labels))
    assert set(losses) == {"d0.loss_cls", "d0.loss_bbox", "loss_cls", "loss_bbox"}
    for loss in losses.values():
        torch.testing.assert_close(loss, torch.tensor(0.0), rtol=0, atol=1e-5)


def test_a_wrong_velocity_costs_a_fifth_of_a_wrong_place(head):
    boxes, labels = make_boxes(4), torch.randint(10, (4,))
    costs = []
    for channel in (0, 8):
        predictions = predict(boxes, labels)
        predictions["all_bbox_preds"][-1, 0, 2, channel] += 0.5
        costs.append(head.loss([boxes], [labels], predictions)["loss_bbox"].item())
    assert costs[0] == pytest.approx(0.25 * 0.45 / 4, rel=1e-3)
    assert costs[1] == pytest.approx(costs[0] / 5, rel=1e-3)


def test_a_frame_without_objects_has_finite_losses(head):
    boxes, labels = torch.empty(0, 9), torch.empty(0, dtype=torch.int64)
    predictions = {
        "all_cls_scores": torch.randn(2, 1, 9, 10, requires_grad=True),
        "all_bbox_preds": torch.randn(2, 1, 9, 10, requires_grad=True),
    }
    losses = head.loss([boxes], [labels], predictions)
    assert all(loss.isfinite() for loss in losses.values())
    sum(losses.values()).backward()
