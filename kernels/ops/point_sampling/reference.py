"""The usual formulation of `point_sampling`, whose bits on a CPU every backend gives."""

from __future__ import annotations

import torch
from torch import Tensor

from . import Inputs


def forward(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Every point copied for every camera, and a product of 4 x 4 matrices, in float32."""
    points, lidar2img, pc_range, size = inputs
    wide = torch.promote_types(points.dtype, torch.float32)
    axes = zip(points.to(wide).unbind(-1), pc_range[:3], pc_range[3:], strict=True)
    metres = [axis * (high - low) + low for axis, low, high in axes]
    points = torch.stack((*metres, torch.ones_like(metres[0])), -1).float()
    columns = points.transpose(0, 1)[:, :, None, :, :, None]  # (Z, B, 1, Q, 4, 1)
    cameras, queries = lidar2img.shape[1], points.shape[2]
    matrices = lidar2img.float()[None, :, :, None].expand(-1, -1, -1, queries, -1, -1)
    seen = (matrices @ columns.expand(-1, -1, cameras, -1, -1, -1)).squeeze(-1)
    depth = seen[..., 2:3]
    xy = seen[..., :2] / torch.maximum(depth, torch.ones_like(depth) * 1e-5)
    xy = torch.stack((xy[..., 0] / size[1], xy[..., 1] / size[0]), -1)
    visible = (depth > 1e-5) & (xy > 0.0).all(-1, True) & (xy < 1.0).all(-1, True)
    return xy.permute(2, 1, 3, 0, 4), visible.permute(2, 1, 3, 0, 4).squeeze(-1)
