"""The previous map is turned and moved by the ego motion; levels and decoder fit together."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from model import ModelConfig, build_model
from projects.mmdet3d_plugin.bevformer.modules.transformer import rotate
from projects.mmdet3d_plugin.datasets.frame import PC_RANGE, collate
from projects.mmdet3d_plugin.datasets.synthetic import make_frames, rig

BATCH, BEV, C = 2, 6, 16


@pytest.fixture
def transformer():
    config = ModelConfig(bev=BEV, levels=2, embed_dims=C, heads=4, encoder_layers=1)
    return build_model(config).eval().pts_bbox_head.transformer


def make_inputs(degrees=0.0):
    can_bus = np.zeros(18)
    can_bus[-1] = degrees
    meta = {"lidar2img": list(rig(0.2)), "img_shape": [(192, 320, 3)] * 6, "can_bus": can_bus}
    return {
        "mlvl_feats": [torch.randn(BATCH, 6, C, 12, 20), torch.randn(BATCH, 6, C, 6, 10)],
        "bev_queries": torch.randn(BEV * BEV, C),
        "bev_h": BEV,
        "bev_w": BEV,
        "bev_pos": torch.randn(BATCH, C, BEV, BEV),
        "img_metas": [meta] * BATCH,
    }


def test_rotation_is_counter_clockwise_about_the_centre():
    image = torch.randn(3, 5, 5)
    torch.testing.assert_close(rotate(image, 90, (2.5, 2.5)), image.rot90(1, (1, 2)))
    torch.testing.assert_close(rotate(image, 0, (1, 4)), image)


def test_rotation_fills_with_zeros_and_keeps_its_centre():
    image = torch.ones(1, 9, 9)
    turned = rotate(image, 180, (1.5, 2.5))  # the centre of column 1, row 2
    assert turned[0, :5, :3].all()
    assert not turned[0, 5:].any()
    assert not turned[0, :, 3:].any()


def test_bev_features_have_the_contracts_shape_with_either_layout_of_the_previous_map(transformer):
    inputs = make_inputs()
    first = transformer.get_bev_features(**inputs)
    assert first.shape == (BATCH, BEV * BEV, C)
    batch_first = transformer.get_bev_features(prev_bev=first.detach().clone(), **inputs)
    queries_first = transformer.get_bev_features(
        prev_bev=first.detach().transpose(0, 1).clone(), **inputs
    )
    torch.testing.assert_close(batch_first, queries_first)


def test_the_rotated_map_is_written_into_the_callers(transformer):
    previous = torch.randn(BATCH, BEV * BEV, C)
    expected = previous.view(BATCH, BEV, BEV, C).rot90(1, (1, 2)).flatten(1, 2)
    transformer.get_bev_features(prev_bev=previous, **make_inputs(degrees=90.0))
    torch.testing.assert_close(previous, expected)


@pytest.mark.parametrize(("right", "ahead"), [(0, 2.0), (3.0, 0), (1.0, -2.0)])
def test_the_shift_is_the_motion_to_the_right_and_ahead_in_map_sizes(transformer, right, ahead):
    heading = np.random.uniform(0, 2 * np.pi)
    can_bus = np.zeros(18)
    can_bus[0] = ahead * np.cos(heading) + right * np.sin(heading)
    can_bus[1] = ahead * np.sin(heading) - right * np.cos(heading)
    can_bus[-2] = heading
    shift = transformer._shift([{"can_bus": can_bus}], (0.5, 0.25), 20, 40)
    assert shift[0] == pytest.approx([right / 10, ahead / 10])


@pytest.mark.parametrize("seed", range(3))
def test_an_object_that_stands_still_is_found_in_the_moved_map(transformer, seed):
    """Ego motion, heading and map axes agree: where it is now, the previous map shows it."""
    cells, low, width = 256, PC_RANGE[0], PC_RANGE[3] - PC_RANGE[0]
    before, now = make_frames(seed, 0.05)
    assert len(before.boxes) == len(now.boxes)
    meta = collate([before, now])["img_metas"][0][1]
    shift = transformer._shift([meta], [width / cells] * 2, cells, cells)[0]
    still = ~now.boxes[:, 7:].any(1)
    assert still.any()
    for box in np.flatnonzero(still):
        column, row = ((before.boxes[box, :2] - low) / width * cells).astype(int)
        shown = torch.zeros(1, cells, cells)
        shown[0, row - 3 : row + 4, column - 3 : column + 4] = 1
        shown = rotate(shown, meta["can_bus"][-1], (cells / 2, cells / 2))
        place = torch.tensor((now.boxes[box, :2] - low) / width + shift).float()
        grid = (2 * place - 1).view(1, 1, 1, 2)
        assert F.grid_sample(shown[None], grid, align_corners=False).item() > 0.9


def test_levels_are_joined_fine_to_coarse(transformer):
    levels = make_inputs()["mlvl_feats"]
    features, shapes, starts = transformer._flatten(levels)
    assert features.shape == (6, 300, BATCH, C)
    assert shapes.tolist() == [[12, 20], [6, 10]]
    assert starts.tolist() == [0, 240]
    expected = levels[1][1, 4, :, 2, 3] + transformer.cams_embeds[4] + transformer.level_embeds[1]
    torch.testing.assert_close(features[4, 240 + 2 * 10 + 3, 1], expected)


def test_the_decoder_refines_a_reference_point_per_layer(transformer):
    branches = torch.nn.ModuleList(torch.nn.Linear(C, 10) for _ in range(2))
    bev, states, first, refined = transformer(
        object_query_embed=torch.randn(7, 2 * C), reg_branches=branches, **make_inputs()
    )
    assert bev.shape == (BEV * BEV, BATCH, C)
    assert states.shape == (2, 7, BATCH, C)
    assert first.shape == (BATCH, 7, 3)
    assert refined.shape == (2, BATCH, 7, 3)
    assert not torch.equal(refined[0], refined[1])
