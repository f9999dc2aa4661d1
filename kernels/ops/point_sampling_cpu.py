"""`point_sampling` in C++, for CPU tensors: see point_sampling.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ._cpu_call import call

if TYPE_CHECKING:
    from collections.abc import Sequence


def forward(
    reference_points: Tensor,
    lidar2img: Tensor,
    pc_range: Sequence[float],
    image_size: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """See `point_sampling`. Bitwise the same for any number of threads."""
    dtype = torch.promote_types(reference_points.dtype, torch.float32)
    pillars = reference_points.to(dtype).contiguous()
    matrices = lidar2img.float().contiguous()
    extent = [high - low for low, high in zip(pc_range[:3], pc_range[3:], strict=True)]
    box = torch.tensor([*pc_range[:3], *extent], dtype=dtype, device="cpu")
    batch, heights, queries, _ = pillars.shape
    cameras = matrices.shape[1]
    points = torch.empty(cameras, batch, queries, heights, 2, dtype=torch.float32, device="cpu")
    visible = torch.empty(cameras, batch, queries, heights, dtype=torch.bool, device="cpu")
    height, width = image_size
    call(
        "point_sampling",
        dtype,
        [pillars, matrices, box, points, visible],
        [width, height, batch, cameras, heights, queries],
    )
    return points, visible
