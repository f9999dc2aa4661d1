"""`point_sampling` in PyTorch's own operators, for devices that have no fused kernel.

Operators that round as `point_sampling` says: coordinate by coordinate, because a matrix product
may sum in another order, and with divisors as tensors, because torch multiplies by the reciprocal
of a plain number on a GPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import Inputs

EPSILON = 1e-5


def forward(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """See `point_sampling`."""
    reference_points, lidar2img, pc_range, image_size = inputs
    wide = torch.promote_types(reference_points.dtype, torch.float32)
    pillars = reference_points.to(wide).permute(3, 0, 2, 1)  # (3, B, Q, Z)
    metres = [
        (axis * (high - low) + low).float().contiguous()
        for axis, low, high in zip(pillars, pc_range[:3], pc_range[3:], strict=True)
    ]
    rows = lidar2img.float().permute(2, 3, 1, 0).contiguous()[..., None, None]  # (4, 4, N, B, 1, 1)

    def project(row: Tensor) -> Tensor:
        total: Tensor = row[0] * metres[0]
        total += row[1] * metres[1]
        total += row[2] * metres[2]
        total += row[3]
        return total

    depth = project(rows[2])
    visible = depth > EPSILON
    depth.clamp_(min=EPSILON)
    points = depth.new_empty((*depth.shape, 2))
    height, width = image_size
    for axis, size in enumerate((width, height)):
        share = points[..., axis]
        torch.div(project(rows[axis]), depth, out=share)
        share /= share.new_full((), size)
        visible &= share > 0
        visible &= share < 1
    return points, visible
