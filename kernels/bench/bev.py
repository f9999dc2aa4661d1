"""What the benchmarks of BEVFormer's two attentions share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.linear import linear


def apply_linear(layer: nn.Linear, x: Tensor, *, fused: bool) -> Tensor:
    """`layer(x)`; on the fused side by the faster of torch's libraries, as the Groups have it."""
    function = linear if fused else F.linear
    out: Tensor = function(x, layer.weight, layer.bias)
    return out


def bird_grid(height: int, width: int) -> Tensor:
    """(height * width, 2): the middles of a map's cells as (x, y), 0 to 1."""
    y, x = torch.meshgrid(
        (torch.arange(height) + 0.5) / height, (torch.arange(width) + 0.5) / width, indexing="ij"
    )
    return torch.stack((x, y), -1).flatten(0, 1)
