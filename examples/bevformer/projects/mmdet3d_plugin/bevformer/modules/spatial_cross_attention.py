"""Spatial cross-attention: each BEV query looks at the cameras that see its pillar."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .initialization import init_sampling, xavier_linear
from .multi_scale_deformable_attn_function import MultiScaleDeformableAttnFunction_fp32


class SpatialCrossAttention(nn.Module):
    """Deformable attention from BEV pillars into camera features (arXiv 2203.17270, section 3.3).

    Args:
        embed_dims: channels C.
        num_cams: cameras Nc.
        pc_range: the BEV range; kept for reference.
        dropout: probability on the output, before the residual.
        batch_first: kept for reference; queries are (B, Q, C), keys and values (Nc, K, B, C).
        deformable_attention: the attention that runs per camera.
    """

    def __init__(
        self,
        embed_dims: int = 256,
        num_cams: int = 6,
        pc_range: list[float] | None = None,
        dropout: float = 0.1,
        batch_first: bool = False,
        deformable_attention: MSDeformableAttention3D | None = None,
    ) -> None:
        super().__init__()
        self.embed_dims = embed_dims
        self.num_cams = num_cams
        self.pc_range = pc_range
        self.batch_first = batch_first
        self.dropout = nn.Dropout(dropout)
        self.deformable_attention = deformable_attention or MSDeformableAttention3D(embed_dims)
        self.output_proj = nn.Linear(embed_dims, embed_dims)
        self.init_weight()

    def init_weight(self) -> None:
        xavier_linear(self.output_proj)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
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
        """Attend camera by camera and average over the cameras that see a query.

        Args:
            query: (B, Q, C).
            key, value: (Nc, K, B, C), all levels along K.
            residual: (B, Q, C); None stands for the query.
            query_pos: (B, Q, C), added to the query.
            key_padding_mask, reference_points, flag: unused.
            spatial_shapes: (L, 2) int64.
            reference_points_cam: (Nc, B, Q, Z, 2) as (x, y), 0 to 1 across the image.
            bev_mask: (Nc, B, Q, Z) bool, which of these points the camera sees.
            level_start_index: (L,) int64.

        Returns:
            (B, Q, C), dropout and residual included.
        """
        residual = query if residual is None else residual
        slots = torch.zeros_like(query)
        if query_pos is not None:
            query = query + query_pos
        batch = query.shape[0]
        heights = reference_points_cam.shape[3]

        # Which queries a camera sees is read from the first item of the batch, as published.
        visible = [mask[0].sum(-1).nonzero().squeeze(-1) for mask in bev_mask]
        longest = max(len(indices) for indices in visible)

        # One padded list of queries per camera instead of every query in every camera.
        queries = query.new_zeros(batch, self.num_cams, longest, self.embed_dims)
        points = reference_points_cam.new_zeros(batch, self.num_cams, longest, heights, 2)
        for item in range(batch):
            for camera, indices in enumerate(visible):
                queries[item, camera, : len(indices)] = query[item, indices]
                points[item, camera, : len(indices)] = reference_points_cam[camera, item, indices]

        keys = key.shape[1]
        key = key.permute(2, 0, 1, 3).reshape(batch * self.num_cams, keys, self.embed_dims)
        value = value.permute(2, 0, 1, 3).reshape(batch * self.num_cams, keys, self.embed_dims)
        attended = self.deformable_attention(
            query=queries.view(batch * self.num_cams, longest, self.embed_dims),
            key=key,
            value=value,
            reference_points=points.view(batch * self.num_cams, longest, heights, 2),
            spatial_shapes=spatial_shapes,
            level_start_index=level_start_index,
        ).view(batch, self.num_cams, longest, self.embed_dims)
        for item in range(batch):
            for camera, indices in enumerate(visible):
                slots[item, indices] += attended[item, camera, : len(indices)]

        cameras = (bev_mask.sum(-1) > 0).permute(1, 2, 0).sum(-1).clamp(min=1.0)
        slots = self.output_proj(slots / cameras[..., None])
        return self.dropout(slots) + residual


class MSDeformableAttention3D(nn.Module):
    """Deformable attention around the Z projections of a pillar; no residual, no output projection.

    Args:
        embed_dims: channels C, a multiple of `num_heads`.
        num_heads: attention heads.
        num_levels: feature levels.
        num_points: sampling points per head and level, a multiple of the pillar's Z heights.
        im2col_step: passed through to the attention Function.
        batch_first: whether query and value come as (B, N, C) rather than (N, B, C).
    """

    def __init__(
        self,
        embed_dims: int = 256,
        num_heads: int = 8,
        num_levels: int = 4,
        num_points: int = 8,
        im2col_step: int = 64,
        batch_first: bool = True,
    ) -> None:
        super().__init__()
        if embed_dims % num_heads:
            raise ValueError(f"embed_dims {embed_dims} is not a multiple of num_heads {num_heads}")
        self.embed_dims = embed_dims
        self.num_heads = num_heads
        self.num_levels = num_levels
        self.num_points = num_points
        self.im2col_step = im2col_step
        self.batch_first = batch_first
        samples = num_heads * num_levels * num_points
        self.sampling_offsets = nn.Linear(embed_dims, samples * 2)
        self.attention_weights = nn.Linear(embed_dims, samples)
        self.value_proj = nn.Linear(embed_dims, embed_dims)
        self.output_proj = None
        self.init_weights()

    def init_weights(self) -> None:
        init_sampling(
            self.sampling_offsets, self.attention_weights, self.num_heads, self.num_points
        )
        xavier_linear(self.value_proj)

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
        **kwargs: Any,
    ) -> Tensor:
        """Sample `num_points` points per level, spread evenly over the Z reference points.

        Args:
            query: (B * Nc, N, C).
            key, identity: unused.
            value: (B * Nc, K, C); None stands for the query.
            query_pos: (B * Nc, N, C), added to the query.
            key_padding_mask: (B * Nc, K) bool, True where the value is zeroed.
            reference_points: (B * Nc, N, Z, 2) as (x, y), 0 to 1 across the image.
            spatial_shapes: (L, 2) int64.
            level_start_index: (L,) int64.

        Returns:
            (B * Nc, N, C).
        """
        if value is None:
            value = query
        if query_pos is not None:
            query = query + query_pos
        if not self.batch_first:
            query, value = query.permute(1, 0, 2), value.permute(1, 0, 2)
        batch, length, _ = query.shape
        keys = value.shape[1]
        heads, levels, points = self.num_heads, self.num_levels, self.num_points
        heights = reference_points.shape[2]
        if points % heights:
            raise ValueError(
                f"num_points {points} is not a multiple of the {heights} pillar heights"
            )

        value = self.value_proj(value)
        if key_padding_mask is not None:
            value = value.masked_fill(key_padding_mask[..., None], 0.0)
        value = value.view(batch, keys, heads, -1)
        offsets = self.sampling_offsets(query).view(batch, length, heads, levels, points, 2)
        weights = self.attention_weights(query).view(batch, length, heads, levels * points)
        weights = weights.softmax(-1).view(batch, length, heads, levels, points)

        size = spatial_shapes.flip(-1)  # (width, height), as the offsets are (x, y)
        offsets = (offsets / size[:, None]).view(
            batch, length, heads, levels, points // heights, heights, 2
        )
        locations = reference_points[:, :, None, None, None] + offsets
        locations = locations.view(batch, length, heads, levels, points, 2)

        output = MultiScaleDeformableAttnFunction_fp32.apply(
            value, spatial_shapes, level_start_index, locations, weights, self.im2col_step
        )
        return output if self.batch_first else output.permute(1, 0, 2)
