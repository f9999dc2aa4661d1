"""Attention weights of the fused operators in PyTorch's operators: softmax and its gradient."""

from __future__ import annotations

import torch
from torch import Tensor


def weights(offsets: Tensor, logits: Tensor, dtype: torch.dtype) -> Tensor:
    """The softmax of the logits (..., L * P), as the offsets lie: (..., L, P)"""
    return logits.to(dtype).softmax(-1).view(offsets.shape[:-1])


def backward(grad_weights: Tensor, weights: Tensor) -> Tensor:
    """The gradient of the logits whose softmax over the last two dimensions `weights` is."""
    product = grad_weights * weights
    return product - weights * product.sum((-2, -1), keepdim=True)
