"""Feature pyramid (arXiv 1612.03144)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence


class FPN(nn.Module):
    """Bring backbone features to one width and add coarse ones to fine ones.

    Levels beyond the backbone's come from strided convolutions.

    Args:
        in_channels: channels of the backbone's features, fine to coarse.
        out_channels: channels of every level.
        num_outs: levels returned, at least as many as inputs.
    """

    def __init__(self, in_channels: Sequence[int], out_channels: int, num_outs: int) -> None:
        super().__init__()
        extra = num_outs - len(in_channels)
        self.lateral_convs = nn.ModuleList(
            nn.Conv2d(channels, out_channels, 1) for channels in in_channels
        )
        self.fpn_convs = nn.ModuleList(
            nn.Conv2d(out_channels, out_channels, 3, padding=1) for _ in in_channels
        )
        self.extra_convs = nn.ModuleList(
            nn.Conv2d(out_channels, out_channels, 3, stride=2, padding=1) for _ in range(extra)
        )

    def forward(self, features: Sequence[Tensor]) -> list[Tensor]:
        """One (N, C_i, H_i, W_i) per input to one (N, out_channels, H_i, W_i) per level."""
        laterals = [conv(x) for conv, x in zip(self.lateral_convs, features, strict=True)]
        for level in range(len(laterals) - 1, 0, -1):
            finer = laterals[level - 1]
            laterals[level - 1] = finer + F.interpolate(laterals[level], size=finer.shape[-2:])
        outputs = [conv(x) for conv, x in zip(self.fpn_convs, laterals, strict=True)]
        for conv in self.extra_convs:
            outputs.append(conv(outputs[-1].relu()))
        return outputs
