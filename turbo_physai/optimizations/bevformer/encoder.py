"""The encoder's projection of BEV pillars into the cameras, on the fused operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from turbo_physai.kernels import point_sampling as project

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def point_sampling(
    self: Any,
    reference_points: Tensor,
    pc_range: Sequence[float],
    img_metas: Sequence[Mapping[str, Any]],
) -> tuple[Tensor, Tensor]:
    """`BEVFormerEncoder.point_sampling`."""
    matrices = np.asarray([meta["lidar2img"] for meta in img_metas], np.float32)
    lidar2img = torch.from_numpy(matrices).to(reference_points.device)
    height, width = img_metas[0]["img_shape"][0][:2]
    projected: tuple[Tensor, Tensor] = project(
        reference_points.float(), lidar2img, pc_range, (height, width)
    )
    return projected
