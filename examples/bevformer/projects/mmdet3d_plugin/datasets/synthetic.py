"""Six cameras around a moving vehicle, and coloured boxes drawn into their images."""

from __future__ import annotations

import colorsys
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from .frame import CLASSES, IMAGE_SIZE, Frame, in_range, to_lidar2img

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Per camera of a nuScenes-like rig: angle left of ahead in degrees, focal length in pixels.
RIG = ((0, 1266), (-55, 1266), (55, 1266), (180, 809), (110, 1266), (-110, 1266))
CAMERA_RADIUS, CAMERA_HEIGHT = 0.6, -0.3  # metres from the LiDAR
GROUND = -1.84  # height of the road below the LiDAR, in metres
INTERVAL = 0.5  # seconds between key frames
# Typical length, width and height in metres, and top speed in m/s.
SIZES = {
    "car": (4.6, 1.95, 1.7, 10),
    "truck": (6.9, 2.5, 2.8, 8),
    "trailer": (12.0, 2.9, 3.9, 8),
    "bus": (11.0, 2.95, 3.5, 8),
    "construction_vehicle": (6.4, 2.8, 3.2, 2),
    "bicycle": (1.7, 0.6, 1.3, 4),
    "motorcycle": (2.1, 0.8, 1.5, 8),
    "pedestrian": (0.7, 0.7, 1.8, 1.5),
    "traffic_cone": (0.4, 0.4, 1.1, 0),
    "barrier": (0.5, 2.5, 1.0, 0),
}
# Corners of a box in units of its size, and its faces.
CORNERS = np.array([(x, y, z) for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
FACES = ((0, 1, 3, 2), (4, 5, 7, 6), (0, 1, 5, 4), (2, 3, 7, 6), (0, 2, 6, 4), (1, 3, 7, 5))


def rig(scale: float) -> NDArray[np.float64]:
    """Projections (6, 4, 4) of the cameras, images resized by `scale`."""
    matrices = []
    for degrees, focal in RIG:
        angle = np.radians(degrees)
        ahead = np.array([-np.sin(angle), np.cos(angle), 0.0])
        right = np.array([np.cos(angle), np.sin(angle), 0.0])
        lidar2cam = np.eye(4)
        lidar2cam[:3, :3] = right, (0.0, 0.0, -1.0), ahead
        lidar2cam[:3, 3] = -lidar2cam[:3, :3] @ (CAMERA_RADIUS * ahead + (0, 0, CAMERA_HEIGHT))
        height, width = IMAGE_SIZE
        cam2img = np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1.0]])
        matrices.append(to_lidar2img(cam2img, lidar2cam, scale))
    return np.stack(matrices)


def box_corners(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Corners (G, 8, 3) of boxes (G, 9)."""
    local = CORNERS * boxes[:, None, 3:6]
    cos, sin = np.cos(boxes[:, 6, None]), np.sin(boxes[:, 6, None])
    x = cos * local[..., 0] - sin * local[..., 1]
    y = sin * local[..., 0] + cos * local[..., 1]
    return np.stack([x, y, local[..., 2]], -1) + boxes[:, None, :3]


def _draw(
    boxes: NDArray[np.float64],
    labels: NDArray[np.int64],
    lidar2img: NDArray[np.float64],
    size: tuple[int, int],
    rng: np.random.Generator,
) -> NDArray[np.uint8]:
    """One image (height, width, 3): sky, road, and the boxes from far to near."""
    height, width = size
    rows = np.arange(height)[:, None, None]
    sky, road = np.array([150, 180, 220]), np.array([90, 90, 95])
    plain = np.where(rows < height / 2, sky, road) + rng.normal(0, 6, (height, width, 1))
    image = Image.fromarray(plain.clip(0, 255).astype(np.uint8))
    canvas = ImageDraw.Draw(image)
    corners = box_corners(boxes) @ lidar2img[:3, :3].T + lidar2img[:3, 3]
    faces = [
        (corners[index, face], index, side)
        for index in range(len(boxes))
        for side, face in enumerate(FACES)
        if corners[index, face, 2].min() > 0.5  # none of it behind the camera
    ]
    for points, index, side in sorted(faces, key=lambda face: -face[0][:, 2].mean()):
        pixels = points[:, :2] / points[:, 2:]
        colour = colorsys.hsv_to_rgb(labels[index] / len(CLASSES), 0.8, 0.95 - 0.1 * side)
        shade = tuple(int(255 * part) for part in colour)
        canvas.polygon([tuple(pixel) for pixel in pixels], fill=shade, outline=(20, 20, 20))
    return np.asarray(image)


def _scatter(
    objects: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Random boxes (G, 9) on the road around the vehicle and their labels (G,)."""
    labels = rng.integers(len(CLASSES), size=objects)
    sizes = np.array([SIZES[CLASSES[label]] for label in labels])
    extent = sizes[:, :3] * rng.uniform(0.9, 1.1, (objects, 3))
    # One sector each keeps the boxes apart.
    bearing = 2 * np.pi * (np.arange(objects) + rng.uniform(0.2, 0.8, objects)) / objects
    distance = rng.uniform(8, 40, objects)
    yaw = rng.uniform(-np.pi, np.pi, objects)
    speed = sizes[:, 3] * rng.uniform(0, 1, objects)
    columns = [
        distance * np.cos(bearing),
        distance * np.sin(bearing),
        GROUND + extent[:, 2] / 2,
        *extent.T,
        yaw,
        speed * np.cos(yaw),
        speed * np.sin(yaw),
    ]
    return np.stack(columns, -1), labels


def make_frames(seed: int, scale: float, length: int = 2, objects: int = 24) -> list[Frame]:
    """Drive through a random scene.

    Args:
        seed: the same seed makes the same frames.
        scale: size of the images relative to 1600 x 900.
        length: frames, half a second apart, the oldest first.
        objects: boxes around the vehicle; those that leave the BEV range are left out.
    """
    rng = np.random.default_rng(seed)
    now, labels = _scatter(objects, rng)
    heading, speed, turn = rng.uniform(0, 2 * np.pi), rng.uniform(2, 8), rng.uniform(-0.1, 0.1)
    matrices = rig(scale)
    size = round(IMAGE_SIZE[0] * scale), round(IMAGE_SIZE[1] * scale)

    frames = []
    for step in range(1 - length, 1):
        # The last frame's axes are the scene's; earlier ones are seen from there.
        time, angle = step * INTERVAL, step * turn
        ahead = speed * time
        cos, sin = np.cos(angle), np.sin(angle)
        axes = np.array([[cos, -sin], [sin, cos]])  # the vehicle's at that time, as columns
        boxes = now.copy()
        boxes[:, :2] = (now[:, :2] + now[:, 7:] * time - (0, ahead)) @ axes
        boxes[:, 6] -= angle
        boxes[:, 7:] = now[:, 7:] @ axes
        keep = in_range(boxes)
        images = [_draw(boxes[keep], labels[keep], matrix, size, rng) for matrix in matrices]
        frames.append(
            Frame(
                images=np.stack(images),
                lidar2img=matrices,
                boxes=boxes[keep],
                labels=labels[keep],
                position=(ahead * np.cos(heading), ahead * np.sin(heading)),
                heading=heading + angle,
            )
        )
    return frames
