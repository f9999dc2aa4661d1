"""BEVFormer's attention modules, their methods rewritten around the fused operators.

Each takes and returns what the original does, draws the same random numbers, and reads the same
parameters: weights and checkpoints stay as they are. The `supports_...` functions say for which
calls that holds; the others go to the original.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from turbo_physai.engine.metrics import metrics
from turbo_physai.kernels import (
    linear_of_concatenation,
    spatial_cross_attention,
    supports_head_dim,
    temporal_self_attention,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from turbo_physai.optimizations.bevformer.options import SpatialCrossAttentionOptions

OTHER_ITEMS: Final = (
    "batches of two or more items: the cameras that see a query are those of the first item, as "
    "published; the option 'visibility: per_item' asks each item"
)


def spatial_cross_attention_forward(
    original: Callable[..., Tensor], options: SpatialCrossAttentionOptions
) -> Callable[..., Tensor]:
    """`SpatialCrossAttention.forward` and the `MSDeformableAttention3D.forward` inside it, in one.

    Args:
        original: the method.
        options: whose cameras see a query; it makes a difference for batches of two and more.
    """
    first_item, report = options.visibility == "first_item", metrics()
    warn_once = cache(lambda: report.warn(OTHER_ITEMS))

    def forward(
        self: Any,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        residual: Tensor | None = None,
        query_pos: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        reference_points: Tensor | None = None,
        spatial_shapes: Tensor | None = None,
        reference_points_cam: Tensor | None = None,
        bev_mask: Tensor | None = None,
        level_start_index: Tensor | None = None,
        flag: str = "encoder",
        **kwargs: Any,
    ) -> Tensor:
        residual = query if residual is None else residual
        value = key if value is None else value
        assert value is not None  # see `supports_spatial_cross_attention`
        if query_pos is not None:
            query = query + query_pos
        attention = self.deformable_attention
        batch, length, _ = query.shape
        if first_item and batch > 1 and not torch.compiler.is_compiling():
            warn_once()
        cameras, keys, _, _ = value.shape
        bags = (batch, length, attention.num_heads)
        samples = (attention.num_levels, attention.num_points)
        # (N, S, B, C) to (B, N, S, H, D): a view for a batch of one.
        value = attention.value_proj(value).permute(2, 0, 1, 3)
        slots = spatial_cross_attention(
            value.reshape(batch, cameras, keys, attention.num_heads, -1),
            spatial_shapes,
            level_start_index,
            attention.sampling_offsets(query).view(*bags, *samples, 2),
            attention.attention_weights(query).view(*bags, -1),
            reference_points_cam,
            bev_mask,
            first_item_visibility=first_item,
        )
        result: Tensor = self.dropout(self.output_proj(slots)) + residual
        return result

    return forward


def supports_spatial_cross_attention(
    self: Any,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    residual: Tensor | None = None,
    query_pos: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    reference_points: Tensor | None = None,
    spatial_shapes: Tensor | None = None,
    reference_points_cam: Tensor | None = None,
    bev_mask: Tensor | None = None,
    level_start_index: Tensor | None = None,
    flag: str = "encoder",
    **kwargs: Any,
) -> bool:
    """Whether the call is the official one: MSDeformableAttention3D inside, camera maps as the
    value, constant projections, and no fp16 wrapping by mmcv."""
    attention = self.deformable_attention
    maps = key if value is None else value
    return (
        type(attention).__name__ == "MSDeformableAttention3D"
        and bool(attention.batch_first)
        and _supports_heads(attention)
        and not _is_wrapped_for_fp16(self, attention)
        and maps is not None
        and maps.dim() == 4
        and reference_points_cam is not None
        and bev_mask is not None
        and not reference_points_cam.requires_grad
        and attention.num_points % reference_points_cam.shape[3] == 0
    )


def temporal_self_attention_forward(
    self: Any,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    identity: Tensor | None = None,
    query_pos: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    reference_points: Tensor | None = None,
    spatial_shapes: Tensor | None = None,
    level_start_index: Tensor | None = None,
    flag: str = "decoder",
    **kwargs: Any,
) -> Tensor:
    """`TemporalSelfAttention.forward`."""
    if value is None:
        value = torch.repeat_interleave(query, self.num_bev_queue, 0)
    identity = query if identity is None else identity
    if query_pos is not None:
        query = query + query_pos
    if not self.batch_first:
        query, value = query.permute(1, 0, 2), value.permute(1, 0, 2)
    batch, length, _ = query.shape
    previous = value[:batch]  # as published: the previous maps where the batch is one
    bags = (batch, length, self.num_heads, self.num_bev_queue)
    offsets, logits = (
        linear_of_concatenation(previous, query, linear.weight, linear.bias)
        for linear in (self.sampling_offsets, self.attention_weights)
    )
    output = temporal_self_attention(
        _projected(self, value, key_padding_mask),
        spatial_shapes,
        level_start_index,
        offsets.view(*bags, self.num_levels, self.num_points, 2),
        logits.view(*bags, -1),
        reference_points,
    )
    return _finished(self, output, identity)


def decoder_attention_forward(
    self: Any,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    identity: Tensor | None = None,
    query_pos: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    reference_points: Tensor | None = None,
    spatial_shapes: Tensor | None = None,
    level_start_index: Tensor | None = None,
    flag: str = "decoder",
    **kwargs: Any,
) -> Tensor:
    """`CustomMSDeformableAttention.forward`: the temporal operator with one map in its queue."""
    value = query if value is None else value
    identity = query if identity is None else identity
    if query_pos is not None:
        query = query + query_pos
    if not self.batch_first:
        query, value = query.permute(1, 0, 2), value.permute(1, 0, 2)
    bags = (*query.shape[:2], self.num_heads, 1)
    output = temporal_self_attention(
        _projected(self, value, key_padding_mask),
        spatial_shapes,
        level_start_index,
        self.sampling_offsets(query).view(*bags, self.num_levels, self.num_points, 2),
        self.attention_weights(query).view(*bags, -1),
        reference_points,
    )
    return _finished(self, output, identity)


def supports_deformable_attention(
    self: Any,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    identity: Tensor | None = None,
    query_pos: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    reference_points: Tensor | None = None,
    spatial_shapes: Tensor | None = None,
    level_start_index: Tensor | None = None,
    flag: str = "decoder",
    **kwargs: Any,
) -> bool:
    """Whether a call of the temporal or the decoder's attention is the official one: the reference
    points are points, not boxes, and mmcv wraps nothing for fp16."""
    return (
        _supports_heads(self)
        and not _is_wrapped_for_fp16(self)
        and (value is not None or bool(self.batch_first))
        and "residual" not in kwargs  # an old name of `identity`, which the original translates
        and reference_points is not None
        and reference_points.shape[-1] == 2
    )


def _projected(self: Any, value: Tensor, key_padding_mask: Tensor | None) -> Tensor:
    """(B, S, C) to (B, S, H, D)."""
    value = self.value_proj(value)
    if key_padding_mask is not None:
        value = value.masked_fill(key_padding_mask[..., None], 0.0)
    return value.view(*value.shape[:2], self.num_heads, -1)


def _finished(self: Any, output: Tensor, identity: Tensor) -> Tensor:
    output = self.output_proj(output)
    if not self.batch_first:
        output = output.permute(1, 0, 2)
    result: Tensor = self.dropout(output) + identity
    return result


def _supports_heads(attention: Any) -> bool:
    return bool(supports_head_dim(attention.embed_dims // attention.num_heads))


def _is_wrapped_for_fp16(*modules: Any) -> bool:
    """Whether mmcv's `wrap_fp16_model` was here: the decorators on the originals then cast."""
    return any(getattr(module, "fp16_enabled", False) for module in modules)
