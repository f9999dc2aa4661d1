"""`point_sampling` in C++, for CPU tensors: see _cpu.cpp."""

from __future__ import annotations

import torch
from torch import Tensor

from ...common.cpu.call import call
from . import Inputs


def forward(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """See `point_sampling`. Bitwise the same for any number of threads."""
    reference_points, lidar2img, pc_range, image_size = inputs
    dtype = torch.promote_types(reference_points.dtype, torch.float32)
    pillars = reference_points.to(dtype).contiguous()
    matrices = lidar2img.float().contiguous()
    extent = [high - low for low, high in zip(pc_range[:3], pc_range[3:], strict=True)]
    box = torch.tensor([*pc_range[:3], *extent], dtype=dtype, device="cpu")
    batch, heights, queries, _ = pillars.shape
    cameras = matrices.shape[1]
    points, visible = inputs.result()
    height, width = image_size
    call(
        "point_sampling",
        dtype,
        [pillars, matrices, box, points, visible],
        [width, height, batch, cameras, heights, queries],
    )
    return points, visible
