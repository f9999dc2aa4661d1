"""Fused operators, one a file. They know nothing of the engine that swaps them in."""

from ._backends import backends
from .ops._checks import supports_head_dim
from .ops.grid_mask import grid_mask
from .ops.linear import linear
from .ops.modulated_deform_conv2d import (
    modulated_deform_conv2d,
    modulated_deform_conv2d_backward,
)
from .ops.ms_deform_attn import ms_deform_attn, ms_deform_attn_backward
from .ops.point_sampling import point_sampling
from .ops.spatial_cross_attention import spatial_cross_attention, spatial_cross_attention_backward
from .ops.split_linear import linear_of_concatenation
from .ops.temporal_self_attention import temporal_self_attention, temporal_self_attention_backward

__all__ = [
    "backends",
    "grid_mask",
    "linear",
    "linear_of_concatenation",
    "modulated_deform_conv2d",
    "modulated_deform_conv2d_backward",
    "ms_deform_attn",
    "ms_deform_attn_backward",
    "point_sampling",
    "spatial_cross_attention",
    "spatial_cross_attention_backward",
    "supports_head_dim",
    "temporal_self_attention",
    "temporal_self_attention_backward",
]
