"""One annotated nuScenes key frame from a folder with `frame.json` and its camera images."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from .frame import CLASSES, Frame, in_range, to_lidar2img

if TYPE_CHECKING:
    from pathlib import Path


def load_frame(folder: Path, scale: float) -> Frame:
    """Read a key frame.

    `frame.json` holds `classes`, `ego2global` 4 x 4, `cameras` (name to `image`, `cam2img` 3 x 3,
    `lidar2cam` 4 x 4) and `annotations` (`label`; `box_lidar` x, y, z of the bottom centre, dx, dy,
    dz, yaw; `velocity`; `valid`). Boxes out of the BEV range or not valid are left out.

    Args:
        folder: where `frame.json` and the images lie.
        scale: factor to resize the images by.

    Raises:
        FileNotFoundError: `folder` has no `frame.json`, or an image that it names is missing.
    """
    description = folder / "frame.json"
    if not description.is_file():
        raise FileNotFoundError(f"{folder} is not a frame: it has no frame.json")
    frame = json.loads(description.read_text())

    images, matrices = [], []
    for camera in frame["cameras"].values():
        with Image.open(folder / camera["image"]) as image:
            size = round(image.width * scale), round(image.height * scale)
            images.append(np.asarray(image.convert("RGB").resize(size, Image.Resampling.BILINEAR)))
        cam2img, lidar2cam = np.array(camera["cam2img"]), np.array(camera["lidar2cam"])
        matrices.append(to_lidar2img(cam2img, lidar2cam, scale))

    found = [entry for entry in frame["annotations"] if entry["valid"]]
    boxes = np.array([entry["box_lidar"] + entry["velocity"] for entry in found], float)
    boxes = np.nan_to_num(boxes.reshape(-1, 9))  # a velocity that could not be measured is NaN
    boxes[:, 2] += boxes[:, 5] / 2  # from the bottom to the gravity centre
    names = [frame["classes"][entry["label"]] for entry in found]
    labels = np.array([CLASSES.index(name) for name in names], np.int64)
    keep = in_range(boxes)

    ego2global = np.array(frame["ego2global"])
    return Frame(
        images=np.stack(images),
        lidar2img=np.stack(matrices),
        boxes=boxes[keep],
        labels=labels[keep],
        position=(float(ego2global[0, 3]), float(ego2global[1, 3])),
        heading=float(np.arctan2(ego2global[1, 0], ego2global[0, 0])),
    )
