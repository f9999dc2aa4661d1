"""Which calls of multi-scale deformable attention the fused operator takes; the others go to the
original, forward and backward alike."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from turbo_physai.kernels import supports_head_dim


def supports_forward(ctx: Any, value: Tensor, *args: Any, **kwargs: Any) -> bool:
    """Of an autograd Function: what `supports_heads` says of its value (bs, keys, heads, dim)."""
    return supports_heads(value)


def supports_backward(ctx: Any, *grads: Any) -> bool:
    """Of the same Function: its fused forward has saved the value before all else."""
    saved = ctx.saved_tensors
    return bool(saved) and supports_heads(saved[0])


def supports_heads(value: Tensor, *args: Any, **kwargs: Any) -> bool:
    """Whether heads (..., dim) have a width that the operator takes."""
    return bool(supports_head_dim(value.shape[-1]))
