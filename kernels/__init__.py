"""Fused operators, one a file. They know nothing of the engine that swaps them in."""

from ._backends import backends
from .ops.ms_deform_attn import ms_deform_attn, ms_deform_attn_backward

__all__ = ["backends", "ms_deform_attn", "ms_deform_attn_backward"]
