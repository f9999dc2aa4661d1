"""Temporal self-attention: BEV queries look at the previous and at the current BEV map."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .initialization import init_sampling, xavier_linear
from .multi_scale_deformable_attn_function import MultiScaleDeformableAttnFunction_fp32


class TemporalSelfAttention(nn.Module):
    """Deformable attention over a queue of two BEV maps (arXiv 2203.17270, section 3.4).

    Args:
        embed_dims: channels C, a multiple of `num_heads`.
        num_heads: attention heads.
        num_levels: feature levels of a BEV map.
        num_points: sampling points per head and map.
        num_bev_queue: maps in the queue; only 2 is supported.
        im2col_step: passed through to the attention Function.
        dropout: probability on the output, before the residual.
        batch_first: whether query and value come as (B, Q, C) rather than (Q, B, C).
    """

    def __init__(
        self,
        embed_dims: int = 256,
        num_heads: int = 8,
        num_levels: int = 4,
        num_points: int = 4,
        num_bev_queue: int = 2,
        im2col_step: int = 64,
        dropout: float = 0.1,
        batch_first: bool = True,
    ) -> None:
        super().__init__()
        if embed_dims % num_heads:
            raise ValueError(f"embed_dims {embed_dims} is not a multiple of num_heads {num_heads}")
        if num_bev_queue != 2:
            raise ValueError(f"num_bev_queue is {num_bev_queue}; only 2 is supported")
        self.embed_dims = embed_dims
        self.num_heads = num_heads
        self.num_levels = num_levels
        self.num_points = num_points
        self.num_bev_queue = num_bev_queue
        self.im2col_step = im2col_step
        self.batch_first = batch_first
        self.dropout = nn.Dropout(dropout)
        samples = num_bev_queue * num_heads * num_levels * num_points
        self.sampling_offsets = nn.Linear(embed_dims * num_bev_queue, samples * 2)
        self.attention_weights = nn.Linear(embed_dims * num_bev_queue, samples)
        self.value_proj = nn.Linear(embed_dims, embed_dims)
        self.output_proj = nn.Linear(embed_dims, embed_dims)
        self.init_weights()

    def init_weights(self) -> None:
        init_sampling(
            self.sampling_offsets, self.attention_weights, self.num_heads, self.num_points
        )
        xavier_linear(self.value_proj, self.output_proj)

    def forward(
        self,
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
        """Attend to both maps and average.

        Args:
            query: (B, Q, C).
            key: ignored; the keys are the values.
            value: (2B, Q, C), rows previous, current, previous, current ...; None stands for the
                query in both places.
            identity: (B, Q, C) residual; None stands for the query.
            query_pos: (B, Q, C), added to the query.
            key_padding_mask: (2B, Q) bool, True where the value is zeroed.
            reference_points: (2B, Q, L, 2) as (x, y), 0 to 1.
            spatial_shapes: (L, 2) int64.
            level_start_index: (L,) int64.

        Returns:
            (B, Q, C), dropout and residual included.
        """
        if value is None:
            batch, length, channels = query.shape
            value = torch.stack([query, query], 1).reshape(batch * 2, length, channels)
        if identity is None:
            identity = query
        if query_pos is not None:
            query = query + query_pos
        if not self.batch_first:
            query, value = query.permute(1, 0, 2), value.permute(1, 0, 2)
        batch, length, channels = query.shape
        keys = value.shape[1]
        heads, queue = self.num_heads, self.num_bev_queue
        levels, points = self.num_levels, self.num_points

        # The first B rows of the value, as published: the previous maps when B is 1.
        query = torch.cat([value[:batch], query], -1)
        value = self.value_proj(value)
        if key_padding_mask is not None:
            value = value.masked_fill(key_padding_mask[..., None], 0.0)
        value = value.reshape(batch * queue, keys, heads, -1)

        offsets = self.sampling_offsets(query).view(batch, length, heads, queue, levels, points, 2)
        weights = self.attention_weights(query).view(batch, length, heads, queue, levels * points)
        weights = weights.softmax(-1).view(batch, length, heads, queue, levels, points)
        weights = (
            weights.permute(0, 3, 1, 2, 4, 5)
            .reshape(batch * queue, length, heads, levels, points)
            .contiguous()
        )
        offsets = offsets.permute(0, 3, 1, 2, 4, 5, 6).reshape(
            batch * queue, length, heads, levels, points, 2
        )
        size = spatial_shapes.flip(-1)  # (width, height), as the offsets are (x, y)
        locations = reference_points[:, :, None, :, None] + offsets / size[:, None]

        output = MultiScaleDeformableAttnFunction_fp32.apply(
            value, spatial_shapes, level_start_index, locations, weights, self.im2col_step
        )
        output = output.permute(1, 2, 0).view(length, channels, batch, queue).mean(-1)
        output = self.output_proj(output.permute(2, 0, 1))
        if not self.batch_first:
            output = output.permute(1, 0, 2)
        return self.dropout(output) + identity
