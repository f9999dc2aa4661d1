"""GridMask augmentation (arXiv 2001.04086)."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn


class GridMask(nn.Module):
    """Blank a regular grid of stripes or squares, the same one in every image of a batch.

    Args:
        use_h: draw horizontal stripes.
        use_w: draw vertical stripes.
        rotate: turn the grid by a whole number of degrees below this one.
        offset: fill the blanks with noise instead of zeros.
        ratio: width of a stripe as a part of the grid's period.
        mode: 0 blanks the stripes, 1 everything else.
        prob: probability that a batch is masked at all.
    """

    def __init__(
        self,
        use_h: bool,
        use_w: bool,
        rotate: int = 1,
        offset: bool = False,
        ratio: float = 0.5,
        mode: int = 0,
        prob: float = 1.0,
    ) -> None:
        super().__init__()
        self.use_h = use_h
        self.use_w = use_w
        self.rotate = rotate
        self.offset = offset
        self.ratio = ratio
        self.mode = mode
        self.st_prob = prob
        self.prob = prob

    def set_prob(self, epoch: int, max_epoch: int) -> None:
        """Grow the probability linearly over the epochs."""
        self.prob = self.st_prob * epoch / max_epoch

    def forward(self, x: Tensor) -> Tensor:
        """Mask images (N, C, H, W) in training; NumPy's global generator draws the grid."""
        if np.random.rand() > self.prob or not self.training:
            return x
        height, width = x.shape[-2:]
        period = np.random.randint(2, height)
        stripe = min(max(int(period * self.ratio + 0.5), 1), period - 1)
        first = np.random.randint(period), np.random.randint(period)

        # Half as large again as the image, so that a turned grid still covers it.
        canvas = int(1.5 * height), int(1.5 * width)
        mask = np.ones(canvas, np.uint8)
        for i in range(canvas[0] // period if self.use_h else 0):
            mask[i * period + first[0] :][:stripe] = 0
        for i in range(canvas[1] // period if self.use_w else 0):
            mask[:, i * period + first[1] :][:, :stripe] = 0
        turned = np.asarray(Image.fromarray(mask).rotate(np.random.randint(self.rotate)))
        top, left = (canvas[0] - height) // 2, (canvas[1] - width) // 2
        cropped = turned[top : top + height, left : left + width].copy()
        keep = torch.from_numpy(cropped).to(x.device, x.dtype)
        if self.mode == 1:
            keep = 1 - keep
        if self.offset:
            noise = torch.from_numpy(2 * (np.random.rand(height, width) - 0.5))
            return x * keep + noise.to(x.device, x.dtype) * (1 - keep)
        return x * keep
