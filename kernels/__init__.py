"""Fused operators, one a file. They know nothing of the engine that swaps them in."""

from .ops.ms_deform_attn import ms_deform_attn, ms_deform_attn_backward

__all__ = ["ms_deform_attn", "ms_deform_attn_backward"]
