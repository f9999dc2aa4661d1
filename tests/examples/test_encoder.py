"""Reference points, projection into the cameras, and shapes through encoder and layer."""

import numpy as np
import pytest
import torch
from model import ModelConfig, build_model
from projects.mmdet3d_plugin.bevformer.modules.encoder import BEVFormerEncoder
from projects.mmdet3d_plugin.datasets.frame import PC_RANGE
from projects.mmdet3d_plugin.datasets.synthetic import rig

BATCH, CAMERAS, BEV, C, KEYS = 2, 6, 6, 16, 60
Q = BEV * BEV


@pytest.fixture
def encoder():
    config = ModelConfig(bev=BEV, embed_dims=C, heads=4, encoder_layers=2)
    return build_model(config).eval().pts_bbox_head.transformer.encoder


def normalize(points):
    low, high = torch.tensor(PC_RANGE).chunk(2)
    return (torch.tensor(points) - low) / (high - low)


def test_reference_points_are_cell_centres_row_by_row():
    points = BEVFormerEncoder.get_reference_points(2, 4, dim="2d", bs=3)
    assert points.shape == (3, 8, 1, 2)
    torch.testing.assert_close(points[0, :4, 0, 0], torch.tensor([0.125, 0.375, 0.625, 0.875]))
    torch.testing.assert_close(points[0, :, 0, 1], torch.tensor([0.25] * 4 + [0.75] * 4))


def test_pillars_stand_on_the_cells():
    points = BEVFormerEncoder.get_reference_points(2, 4, 8, 4, dim="3d", bs=3)
    cells = BEVFormerEncoder.get_reference_points(2, 4, dim="2d", bs=3)
    assert points.shape == (3, 4, 8, 3)
    torch.testing.assert_close(points[..., :2], cells.transpose(1, 2).expand(3, 4, 8, 2))
    heights = torch.linspace(0.5, 7.5, 4) / 8
    torch.testing.assert_close(points[1, :, 5, 2], heights)


def test_another_kind_of_reference_points_is_refused():
    with pytest.raises(ValueError, match="'4d'"):
        BEVFormerEncoder.get_reference_points(2, 2, dim="4d")


def test_known_points_fall_on_known_pixels(encoder):
    # The camera looks along y with a focal length of 100 pixels and its centre at (160, 96).
    lidar2img = np.array([[100, 160, 0, 0], [0, 96, -100, 0], [0, 1, 0, 0], [0, 0, 0, 1]], float)
    points = [[1, 10, -0.5], [-4, 5, 1], [1, -10, -0.5], [20, 10, 0], [0, 20, -30]]
    metas = [{"lidar2img": [lidar2img], "img_shape": [(192, 320, 3)]}]
    located, visible = encoder.point_sampling(normalize(points)[None, None], PC_RANGE, metas)
    assert located.shape == (1, 1, 5, 1, 2)
    pixels = located[0, 0, :2, 0] * torch.tensor([320, 192])
    torch.testing.assert_close(pixels, torch.tensor([[170.0, 101.0], [80.0, 76.0]]))
    # In front and inside, both; then behind, right of the image, below the image.
    assert visible[0, 0, :, 0].tolist() == [True, True, False, False, False]


def test_every_direction_is_seen_by_the_camera_that_faces_it(encoder):
    metas = [{"lidar2img": list(rig(0.2)), "img_shape": [(180, 320, 3)] * CAMERAS}] * BATCH
    angles = torch.deg2rad(torch.tensor([0.0, -55, 55, 180, 110, -110]))
    points = torch.stack([-20 * angles.sin(), 20 * angles.cos(), torch.zeros(6)], -1).tolist()
    points = normalize(points)[None, None].repeat(BATCH, 1, 1, 1)
    located, visible = encoder.point_sampling(points, PC_RANGE, metas)
    assert visible.dtype == torch.bool
    for camera in range(CAMERAS):
        assert visible[camera, :, camera].all()
        torch.testing.assert_close(
            located[camera, :, camera, 0, 0], torch.full((BATCH,), 0.5), rtol=0, atol=1e-3
        )
    assert visible.sum() == BATCH * CAMERAS


def make_inputs():
    features = torch.randn(CAMERAS, KEYS, BATCH, C)
    metas = [{"lidar2img": list(rig(0.2)), "img_shape": [(192, 320, 3)] * CAMERAS}] * BATCH
    return {
        "key": features,
        "value": features,
        "bev_h": BEV,
        "bev_w": BEV,
        "bev_pos": torch.randn(Q, BATCH, C),
        "spatial_shapes": torch.tensor([[6, 10]]),
        "level_start_index": torch.tensor([0]),
        "img_metas": metas,
    }


def test_the_encoder_turns_queries_into_a_map(encoder):
    query = torch.randn(Q, BATCH, C)
    first = encoder(query, **make_inputs())
    assert first.shape == (BATCH, Q, C)
    encoder.return_intermediate = True
    later = encoder(
        query, prev_bev=first.transpose(0, 1), shift=torch.rand(BATCH, 2), **make_inputs()
    )
    assert later.shape == (2, BATCH, Q, C)


def test_layers_get_the_interleaved_queue_and_the_shifted_reference(encoder, monkeypatch):
    calls = []
    for layer in encoder.layers:
        monkeypatch.setattr(layer, "forward", lambda query, *_, **kw: calls.append(kw) or query + 1)
    query, previous = torch.randn(2, Q, BATCH, C)
    shift = torch.rand(BATCH, 2)
    encoder(query, prev_bev=previous, shift=shift, **make_inputs())
    cells = encoder.get_reference_points(BEV, BEV, dim="2d", bs=BATCH)
    for call in calls:  # the second layer gets the queue that the first one got
        torch.testing.assert_close(call["prev_bev"][0::2], previous.transpose(0, 1))
        torch.testing.assert_close(call["prev_bev"][1::2], query.transpose(0, 1))
        torch.testing.assert_close(call["ref_2d"][0::2], cells + shift[:, None, None])
        torch.testing.assert_close(call["ref_2d"][1::2], cells)
    assert len(calls) == 2


def test_a_layer_keeps_the_shape_with_and_without_a_previous_map(encoder):
    query = torch.randn(BATCH, Q, C)
    cells = encoder.get_reference_points(BEV, BEV, dim="2d", bs=2 * BATCH)
    arguments = make_inputs() | {
        "bev_pos": torch.randn(BATCH, Q, C),
        "ref_2d": cells,
        "ref_3d": encoder.get_reference_points(BEV, BEV, 8, 4, dim="3d", bs=BATCH),
        "reference_points_cam": torch.rand(CAMERAS, BATCH, Q, 4, 2),
        "bev_mask": torch.rand(CAMERAS, BATCH, Q, 4) > 0.5,
    }
    for prev_bev in (None, torch.randn(2 * BATCH, Q, C)):
        assert encoder.layers[0](query, prev_bev=prev_bev, **arguments).shape == (BATCH, Q, C)
