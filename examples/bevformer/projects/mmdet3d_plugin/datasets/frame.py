"""A moment seen by several cameras, and what the detector takes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CLASSES = (
    "car",
    "truck",
    "trailer",
    "bus",
    "construction_vehicle",
    "bicycle",
    "motorcycle",
    "pedestrian",
    "traffic_cone",
    "barrier",
)
PC_RANGE = (-51.2, -51.2, -5.0, 51.2, 51.2, 3.0)  # metres around the LiDAR
IMAGE_SIZE = (900, 1600)  # height and width the cameras record
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # RGB


@dataclass(frozen=True)
class Frame:
    """One moment. The LiDAR frame has x to the right, y ahead and z up.

    Attributes:
        images: (Nc, H, W, 3) uint8, RGB.
        lidar2img: (Nc, 4, 4), LiDAR frame to pixels of these images, homogeneous.
        boxes: (G, 9): gravity centre and size in metres, yaw, velocity in m/s, LiDAR frame.
        labels: (G,) int64 into `CLASSES`.
        position: x and y of the vehicle in the world, in metres.
        heading: direction the vehicle faces in the world, in radians.
    """

    images: NDArray[np.uint8]
    lidar2img: NDArray[np.float64]
    boxes: NDArray[np.float64]
    labels: NDArray[np.int64]
    position: tuple[float, float]
    heading: float


def to_lidar2img(
    cam2img: NDArray[np.float64], lidar2cam: NDArray[np.float64], scale: float
) -> NDArray[np.float64]:
    """Join intrinsics (3, 3) and extrinsics (4, 4) for images resized by `scale`."""
    projection = np.eye(4)
    projection[:3, :3] = np.diag([scale, scale, 1.0]) @ cam2img
    return projection @ lidar2cam


def in_range(boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether box centres (G, 9) lie in the BEV range, seen from above."""
    x, y = boxes[:, 0], boxes[:, 1]
    return (x > PC_RANGE[0]) & (x < PC_RANGE[3]) & (y > PC_RANGE[1]) & (y < PC_RANGE[4])


def _can_bus(frame: Frame, previous: Frame | None) -> NDArray[np.float64]:
    """The 18 motion values; only position and heading are known here."""
    can_bus = np.zeros(18)
    heading = frame.heading % (2 * np.pi)
    can_bus[3], can_bus[6] = np.cos(heading / 2), np.sin(heading / 2)  # quaternion w and z
    can_bus[-2] = heading
    if previous is not None:
        can_bus[:2] = np.subtract(frame.position, previous.position)
        can_bus[-1] = np.degrees(frame.heading - previous.heading)
    return can_bus


def collate(queue: Sequence[Frame], divisor: int = 32) -> dict[str, Any]:
    """Turn consecutive frames, the oldest first, into the arguments of `BEVFormer.forward_train`.

    Images are normalised and padded with zeros at the right and bottom to a multiple of `divisor`.
    """
    stacked = torch.from_numpy(np.stack([frame.images for frame in queue])).float()
    images: Tensor = ((stacked - torch.tensor(MEAN)) / torch.tensor(STD)).movedim(-1, -3)
    height, width = images.shape[-2:]
    images = F.pad(images, (0, -width % divisor, 0, -height % divisor))
    metas = [
        {
            "lidar2img": list(frame.lidar2img),
            "img_shape": [(*images.shape[-2:], 3)] * len(frame.images),
            "can_bus": _can_bus(frame, previous),
            "prev_bev_exists": previous is not None,
        }
        for previous, frame in zip((None, *queue[:-1]), queue, strict=True)
    ]
    return {
        "img": images[None],
        "img_metas": [metas],
        "gt_bboxes_3d": [torch.from_numpy(queue[-1].boxes).float()],
        "gt_labels_3d": [torch.from_numpy(queue[-1].labels)],
    }
