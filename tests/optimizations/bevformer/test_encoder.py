"""Projecting the pillars gives the published points, and whether a camera sees them."""

import numpy as np
import pytest
import torch

from turbo_physai.optimizations.bevformer.encoder import point_sampling

PC_RANGE = [-51.2, -51.2, -5.0, 51.2, 51.2, 3.0]


def cameras_around(batch, cameras=3):
    """Cameras of focal length 300 in a ring, as matrices from the lidar's metres to pixels."""
    metas = []
    for _ in range(batch):
        matrices = []
        for angle in np.linspace(0, 2 * np.pi, cameras, endpoint=False) + np.random.rand():
            forward = np.array([np.cos(angle), np.sin(angle), 0.0])
            right = np.array([np.sin(angle), -np.cos(angle), 0.0])
            rows = np.stack([right, [0, 0, -1], forward])
            intrinsic = np.array([[300, 0, 160], [0, 300, 90], [0, 0, 1.0]])
            moved = np.concatenate([rows, rows @ -np.random.randn(3, 1)], 1)
            matrices.append(np.concatenate([intrinsic @ moved, [[0, 0, 0, 1.0]]]))
        metas.append({"lidar2img": matrices, "img_shape": [(180, 320, 3)] * cameras})
    return metas


@pytest.mark.parametrize("batch", [1, 2])
def test_point_sampling(batch):
    from projects.mmdet3d_plugin.bevformer.modules.encoder import BEVFormerEncoder

    encoder = BEVFormerEncoder([], PC_RANGE)
    pillars = encoder.get_reference_points(12, 10, 8.0, 4, dim="3d", bs=batch)
    metas = cameras_around(batch)
    expected, expected_mask = encoder.point_sampling(pillars, PC_RANGE, metas)
    points, mask = point_sampling(encoder, pillars, PC_RANGE, metas)
    assert torch.equal(mask, expected_mask)
    assert 0.02 < mask.float().mean() < 0.5
    torch.testing.assert_close(points[mask], expected[mask], rtol=1e-5, atol=1e-6)
    assert (points.shape, points.dtype) == (expected.shape, expected.dtype)
