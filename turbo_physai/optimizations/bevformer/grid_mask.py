"""GridMask's forward with the mask made on the images' device."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from turbo_physai.kernels import grid_mask


def grid_mask_forward(self: Any, x: Tensor) -> Tensor:
    """`GridMask.forward`: the same draws from NumPy's generator, and the same mask."""
    if np.random.rand() > self.prob or not self.training:
        return x
    masked: Tensor = grid_mask(
        x,
        use_h=self.use_h,
        use_w=self.use_w,
        rotate=self.rotate,
        offset=self.offset,
        ratio=self.ratio,
        mode=self.mode,
    )
    return masked
