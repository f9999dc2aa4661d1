"""Boxes and the code that the head predicts for them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_BETA = 0.1


def normalize_bbox(boxes: Tensor) -> Tensor:
    """Encode boxes for regression.

    Args:
        boxes: (..., 9): centre x, y, z and size dx, dy, dz in metres, yaw in radians, velocity
            vx, vy in m/s.

    Returns:
        (..., 10): x, y, log dx, log dy, z, log dz, sin yaw, cos yaw, vx, vy.
    """
    x, y, z, dx, dy, dz, yaw, vx, vy = boxes.unbind(-1)
    return torch.stack([x, y, dx.log(), dy.log(), z, dz.log(), yaw.sin(), yaw.cos(), vx, vy], -1)


def denormalize_bbox(code: Tensor) -> Tensor:
    """Undo `normalize_bbox`: (..., 10) to (..., 9)."""
    x, y, dx, dy, z, dz, sin, cos, vx, vy = code.unbind(-1)
    yaw = torch.atan2(sin, cos)
    return torch.stack([x, y, z, dx.exp(), dy.exp(), dz.exp(), yaw, vx, vy], -1)


def code_distance(code: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Weighted L1 distance of box codes (..., 10), whose slope passes through zero with it: (...).

    Plain L1 has one slope or the other where a prediction meets its target, and the last bit of the
    prediction would decide which way it is pushed next.
    """
    code, target = torch.broadcast_tensors(code, target)
    return F.smooth_l1_loss(code, target, reduction="none", beta=_BETA) @ weights.to(code)
