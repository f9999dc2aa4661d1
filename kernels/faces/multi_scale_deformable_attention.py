"""The compiled module `MultiScaleDeformableAttention` of Deformable DETR and those that copied it.

Argument names and order are theirs; `im2col_step` means nothing here. All is outside of autograd.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops import ms_deform_attn as op
from .mmcv import ms_deform_attn_forward

__all__ = ["ms_deform_attn_backward", "ms_deform_attn_forward"]


def ms_deform_attn_backward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_loc: Tensor,
    attn_weight: Tensor,
    grad_output: Tensor,
    im2col_step: int = 64,
) -> list[Tensor]:
    """The gradients of value, sampling locations and attention weights."""
    with torch.no_grad():
        grads = op.ms_deform_attn_backward(
            grad_output, value, spatial_shapes, level_start_index, sampling_loc, attn_weight
        )
    return [grad for grad in grads if grad is not None]
