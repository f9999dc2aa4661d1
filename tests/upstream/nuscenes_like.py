"""A tiny data set in the shape of nuScenes: what `CustomNuScenesDataset` of BEVFormer reads, and no
more. One drive along a straight road, six cameras, a handful of boxes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLASSES = ("car", "truck", "bus", "barrier", "pedestrian", "bicycle")
# Degrees left of ahead, and the focal length in pixels of a 1600 x 900 image.
CAMERAS = {
    "CAM_FRONT": (0, 1266),
    "CAM_FRONT_RIGHT": (-55, 1266),
    "CAM_FRONT_LEFT": (55, 1266),
    "CAM_BACK": (180, 809),
    "CAM_BACK_LEFT": (110, 1266),
    "CAM_BACK_RIGHT": (-110, 1266),
}
WIDTH, HEIGHT = 1600, 900
INTERVAL = 0.5  # seconds between key frames
SPEED = 4.0  # metres per second, along the world's x axis


def write(folder: Path, frames: int = 6, seed: int = 0) -> Path:
    """Writes the images of `frames` key frames into `folder`, and their infos.

    Returns:
        The infos file, as `tools/create_data.py` of BEVFormer would name it.
    """
    rng = np.random.default_rng(seed)
    boxes, names = _boxes(rng)
    infos = [_info(folder, index, frames, boxes, names, rng) for index in range(frames)]
    file = folder / "nuscenes_infos_temporal_train.pkl"
    file.write_bytes(pickle.dumps({"infos": infos, "metadata": {"version": "v1.0-mini"}}))
    return file


def _boxes(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """Boxes (12, 7) that stand around the first frame's LiDAR: centre, size, yaw."""
    count = 12
    bearing = 2 * np.pi * (np.arange(count) + rng.uniform(0.2, 0.8, count)) / count
    distance = rng.uniform(6, 30, count)
    columns = [
        distance * np.cos(bearing),
        distance * np.sin(bearing),
        np.full(count, -1.0),
        *rng.uniform((3.5, 1.6, 1.4), (6.0, 2.4, 2.4), (count, 3)).T,
        rng.uniform(-np.pi, np.pi, count),
    ]
    return np.stack(columns, -1), np.array([CLASSES[i % len(CLASSES)] for i in range(count)])


def _info(
    folder: Path,
    index: int,
    frames: int,
    boxes: NDArray[np.float64],
    names: NDArray[np.str_],
    rng: np.random.Generator,
) -> dict[str, Any]:
    travelled = SPEED * INTERVAL * index
    seen = boxes.copy()
    # The LiDAR's y axis points ahead.
    seen[:, 1] -= travelled
    can_bus = np.zeros(18)
    can_bus[7:10] = rng.normal(0, 0.1, 3)  # acceleration
    can_bus[13] = SPEED
    return {
        "token": f"frame{index}",
        "prev": f"frame{index - 1}" if index else "",
        "next": f"frame{index + 1}" if index + 1 < frames else "",
        "scene_token": "scene",
        "frame_idx": index,
        "timestamp": int(1e6 * (1_600_000_000 + INTERVAL * index)),
        "lidar_path": str(folder / f"frame{index}.bin"),  # BEVFormer names it and never opens it
        "sweeps": [],
        "can_bus": can_bus,
        "ego2global_translation": [travelled, 0.0, 0.0],
        "ego2global_rotation": [1.0, 0.0, 0.0, 0.0],
        "lidar2ego_translation": [0.0, 0.0, 1.84],
        "lidar2ego_rotation": [np.sqrt(0.5), 0.0, 0.0, -np.sqrt(0.5)],
        "cams": {name: _camera(folder, index, name, rng) for name in CAMERAS},
        "gt_boxes": seen,
        "gt_names": names,
        "gt_velocity": np.zeros((len(seen), 2)),
        "num_lidar_pts": np.full(len(seen), 9),
        "valid_flag": np.ones(len(seen), bool),
    }


def _camera(folder: Path, index: int, name: str, rng: np.random.Generator) -> dict[str, Any]:
    degrees, focal = CAMERAS[name]
    file = folder / f"{name}_{index}.jpg"
    coarse = Image.fromarray(rng.integers(0, 256, (9, 16, 3), np.uint8))
    coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC).save(file, quality=80)
    angle = np.radians(degrees)
    ahead = np.array([-np.sin(angle), np.cos(angle), 0.0])
    right = np.array([np.cos(angle), np.sin(angle), 0.0])
    return {
        "data_path": str(file),
        "sensor2lidar_rotation": np.stack([right, (0.0, 0.0, -1.0), ahead], -1),
        "sensor2lidar_translation": 0.6 * ahead + (0.0, 0.0, -0.3),
        "cam_intrinsic": np.array(
            [[focal, 0.0, WIDTH / 2], [0.0, focal, HEIGHT / 2], [0.0, 0.0, 1.0]]
        ),
    }
