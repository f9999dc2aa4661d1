"""Starting values shared by the deformable attentions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def xavier_linear(*layers: nn.Linear) -> None:
    """Xavier-uniform weights and zero bias."""
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)


def init_sampling(offsets: nn.Linear, weights: nn.Linear, heads: int, points: int) -> None:
    """Aim head i along the angle 2 pi (i + 1/2) / heads, point p at p + 1 pixels; weigh all alike.

    The half keeps the samples of a BEV cell off the lines between pixels, where they would have a
    gradient to either side and rounding alone would choose.

    Args:
        offsets: Linear to heads * maps * points * 2 channels, in that order.
        weights: Linear to heads * maps * points channels.
        heads: number of heads.
        points: sampling points per map.
    """
    angles = (torch.arange(heads, dtype=torch.float32) + 0.5) * (2 * math.pi / heads)
    rays = torch.stack([angles.cos(), angles.sin()], -1)
    steps = torch.arange(1, points + 1, dtype=torch.float32)
    pattern: Tensor = rays[:, None, None] * steps[:, None]  # (heads, 1, points, 2)
    maps = offsets.out_features // (heads * points * 2)
    nn.init.zeros_(offsets.weight)
    with torch.no_grad():
        offsets.bias.copy_(pattern.expand(heads, maps, points, 2).flatten())
    nn.init.zeros_(weights.weight)
    nn.init.zeros_(weights.bias)
