"""Frames: geometry of the drawn scene, reading a nuScenes key frame, collation."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from projects.mmdet3d_plugin.datasets.frame import CLASSES, PC_RANGE, collate
from projects.mmdet3d_plugin.datasets.nuscenes_frame import load_frame
from projects.mmdet3d_plugin.datasets.synthetic import box_corners, make_frames

REAL = Path(__file__).parents[3] / "shared" / "data" / "nuscenes_frame"


def test_the_same_seed_draws_the_same_frames():
    for one, other in zip(make_frames(5, 0.05), make_frames(5, 0.05), strict=True):
        assert np.array_equal(one.images, other.images)
        assert np.array_equal(one.boxes, other.boxes)
    assert not np.array_equal(one.images, make_frames(6, 0.05)[1].images)


def test_boxes_are_drawn_where_they_project_to():
    frame = make_frames(0, 0.2)[-1]
    centres = frame.boxes[:, :3] @ frame.lidar2img[:, :3, :3].transpose(0, 2, 1)
    centres = centres + frame.lidar2img[:, None, :3, 3]
    shown = 0
    for camera, box in np.argwhere(centres[..., 2] > 10):
        x, y = (centres[camera, box, :2] / centres[camera, box, 2]).astype(int)
        if 0 <= x < 320 and 0 <= y < 180:
            shown += 1
            for background in ([150, 180, 220], [90, 90, 95]):
                assert np.abs(frame.images[camera, y, x] - np.array(background)).max() > 40
    assert shown > len(frame.boxes) / 2


def test_corners_of_a_turned_box():
    corners = box_corners(np.array([[10.0, 0, 1, 4, 2, 2, np.pi / 2, 0, 0]]))[0]
    assert corners.min(0) == pytest.approx([9, -2, 0])
    assert corners.max(0) == pytest.approx([11, 2, 2])


def test_boxes_move_by_their_velocity():
    before, now = make_frames(3, 0.05, objects=12)
    assert len(before.boxes) == len(now.boxes)

    def gaps(points):  # which the vehicle's own motion leaves alone
        return np.linalg.norm(points[:, None] - points[None], axis=-1)

    moved = before.boxes[:, :2] + 0.5 * before.boxes[:, 7:]
    assert gaps(now.boxes[:, :2]) == pytest.approx(gaps(moved))


def test_collation_pads_normalizes_and_tells_the_motion():
    queue = make_frames(2, 0.2)
    sample = collate(queue)
    assert sample["img"].shape == (1, 2, 6, 3, 192, 320)
    assert not sample["img"][..., 180:, :].any()
    red = sample["img"][0, 1, 4, 0, 50, 60].item() * 58.395 + 123.675
    assert red == pytest.approx(queue[1].images[4, 50, 60, 0], abs=1e-3)
    first, last = sample["img_metas"][0]
    assert (first["prev_bev_exists"], last["prev_bev_exists"]) == (False, True)
    assert last["img_shape"][0] == (192, 320, 3)
    assert not first["can_bus"][:3].any()
    step = np.subtract(queue[1].position, queue[0].position)
    assert last["can_bus"][:2] == pytest.approx(step)
    assert last["can_bus"][-1] == pytest.approx(np.degrees(queue[1].heading - queue[0].heading))
    assert torch.equal(sample["gt_labels_3d"][0], torch.from_numpy(queue[1].labels))


@pytest.fixture
def folder(tmp_path):
    """A frame with one camera, one box in range, one out of range and one not valid."""
    Image.new("RGB", (160, 90), (10, 20, 30)).save(tmp_path / "front.png")
    box = [1.0, 20.0, -1.0, 4.0, 2.0, 1.5, 0.3]
    entry = {"label": 1, "box_lidar": box, "velocity": [float("nan"), 1.0], "valid": True}
    description = {
        "classes": ["barrier", "bus"],
        "ego2global": np.eye(4).tolist(),
        "cameras": {
            "CAM_FRONT": {
                "image": "front.png",
                "cam2img": [[100.0, 0, 80], [0, 100, 45], [0, 0, 1]],
                "lidar2cam": [[1.0, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1]],
            }
        },
        "annotations": [
            entry,
            entry | {"box_lidar": [60.0, *box[1:]]},
            entry | {"valid": False},
        ],
    }
    (tmp_path / "frame.json").write_text(json.dumps(description))
    return tmp_path


def test_a_key_frame_is_read_resized_and_filtered(folder):
    frame = load_frame(folder, 0.5)
    assert frame.images.shape == (1, 45, 80, 3)
    assert [CLASSES[label] for label in frame.labels] == ["bus"]
    assert frame.boxes[0] == pytest.approx([1, 20, -0.25, 4, 2, 1.5, 0.3, 0, 1])
    x, y, depth, _ = frame.lidar2img[0] @ [1.0, 20.0, -1.0, 1.0]
    assert (x / depth, y / depth) == pytest.approx((42.5, 25.0))


def test_a_folder_without_a_frame_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"it has no frame\.json"):
        load_frame(tmp_path, 0.5)


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no nuScenes key frame at {REAL}")
def test_the_real_frame_has_objects_in_range():
    frame = load_frame(REAL, 0.2)
    assert frame.images.shape == (6, 180, 320, 3)
    assert len(frame.boxes) == len(frame.labels) > 10
    assert np.isfinite(frame.boxes).all()
    assert (np.abs(frame.boxes[:, :2]) < PC_RANGE[3]).all()
