"""In which dtype operators sum."""

from __future__ import annotations

import torch
from torch import Tensor


def sum_dtype(*tensors: Tensor | None) -> torch.dtype:
    """The dtype that sums are kept in: float64 when an input is, else float32."""
    wide = any(tensor is not None and tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if wide else torch.float32
