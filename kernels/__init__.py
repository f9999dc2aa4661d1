"""Fused operators, a folder each in `ops`. They know nothing of the engine that swaps them in."""

from ._backends import Backends
from ._backends import table as _table
from ._operator import Operator as _Operator
from ._validate import supports_head_dim
from .common.cpu.matrix_product import onednn_pays
from .ops.bev_pool import bev_pool, bev_pool_backward
from .ops.grid_mask import grid_mask
from .ops.linear import linear, linear_of_concatenation
from .ops.modulated_deform_conv2d import modulated_deform_conv2d, modulated_deform_conv2d_backward
from .ops.ms_deform_attn import ms_deform_attn, ms_deform_attn_backward
from .ops.point_sampling import point_sampling
from .ops.spatial_cross_attention import spatial_cross_attention, spatial_cross_attention_backward
from .ops.temporal_self_attention import temporal_self_attention, temporal_self_attention_backward

__all__ = [
    "backends",
    "bev_pool",
    "bev_pool_backward",
    "grid_mask",
    "linear",
    "linear_of_concatenation",
    "modulated_deform_conv2d",
    "modulated_deform_conv2d_backward",
    "ms_deform_attn",
    "ms_deform_attn_backward",
    "onednn_pays",
    "point_sampling",
    "spatial_cross_attention",
    "spatial_cross_attention_backward",
    "supports_head_dim",
    "temporal_self_attention",
    "temporal_self_attention_backward",
]


def backends() -> Backends:
    """Which backends each operator has on this machine, and why one is missing."""
    return _table({name: operator.backends for name, operator in _Operator.all.items()})
