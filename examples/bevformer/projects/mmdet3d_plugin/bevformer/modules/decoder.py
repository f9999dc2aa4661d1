"""Object queries look at the BEV map and refine their boxes layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .initialization import init_sampling, xavier_linear
from .multi_scale_deformable_attn_function import MultiScaleDeformableAttnFunction_fp32
from .transformer_layer import TransformerLayer

if TYPE_CHECKING:
    from collections.abc import Iterable


def inverse_sigmoid(x: Tensor, eps: float = 1e-5) -> Tensor:
    """log(x / (1 - x)) of x clamped to [0, 1], finite at both ends."""
    x = x.clamp(0, 1)
    return torch.log(x.clamp(min=eps) / (1 - x).clamp(min=eps))


class CustomMSDeformableAttention(nn.Module):
    """Deformable attention from object queries into the BEV map.

    Args:
        embed_dims: channels C, a multiple of `num_heads`.
        num_heads: attention heads.
        num_levels: levels of the BEV map.
        num_points: sampling points per head and level.
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
        im2col_step: int = 64,
        dropout: float = 0.1,
        batch_first: bool = False,
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
        self.dropout = nn.Dropout(dropout)
        samples = num_heads * num_levels * num_points
        self.sampling_offsets = nn.Linear(embed_dims, samples * 2)
        self.attention_weights = nn.Linear(embed_dims, samples)
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
        """Sample the BEV map around each query's reference point.

        Args:
            query: (N, B, C) object queries.
            key, flag: unused.
            value: (Q, B, C) BEV map; None stands for the query.
            identity: (N, B, C) residual; None stands for the query.
            query_pos: (N, B, C), added to the query.
            key_padding_mask: (B, Q) bool, True where the value is zeroed.
            reference_points: (B, N, L, 2) as (x, y), 0 to 1.
            spatial_shapes: (L, 2) int64.
            level_start_index: (L,) int64.

        Returns:
            (N, B, C), dropout and residual included.
        """
        if value is None:
            value = query
        if identity is None:
            identity = query
        if query_pos is not None:
            query = query + query_pos
        if not self.batch_first:
            query, value = query.permute(1, 0, 2), value.permute(1, 0, 2)
        batch, length, _ = query.shape
        keys = value.shape[1]
        heads, levels, points = self.num_heads, self.num_levels, self.num_points

        value = self.value_proj(value)
        if key_padding_mask is not None:
            value = value.masked_fill(key_padding_mask[..., None], 0.0)
        value = value.view(batch, keys, heads, -1)
        offsets = self.sampling_offsets(query).view(batch, length, heads, levels, points, 2)
        weights = self.attention_weights(query).view(batch, length, heads, levels * points)
        weights = weights.softmax(-1).view(batch, length, heads, levels, points)
        size = spatial_shapes.flip(-1)  # (width, height), as the offsets are (x, y)
        locations = reference_points[:, :, None, :, None] + offsets / size[:, None]

        output = MultiScaleDeformableAttnFunction_fp32.apply(
            value, spatial_shapes, level_start_index, locations, weights, self.im2col_step
        )
        output = self.output_proj(output)
        if not self.batch_first:
            output = output.permute(1, 0, 2)
        return self.dropout(output) + identity


class DetrTransformerDecoderLayer(TransformerLayer):
    """Attention among the object queries, then from them into the BEV map."""

    def forward(
        self,
        query: Tensor,
        value: Tensor,
        query_pos: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """(N, B, C) queries and (Q, B, C) BEV map to (N, B, C)."""
        self_attention, cross_attention = self.attentions
        query = self.norms[0](self_attention(query, query_pos=query_pos))
        query = cross_attention(query, None, value, query_pos=query_pos, **kwargs)
        return self.norms[2](self.ffns[0](self.norms[1](query)))


class DetectionTransformerDecoder(nn.Module):
    """A stack of decoder layers with iterative box refinement."""

    def __init__(self, layers: Iterable[nn.Module], return_intermediate: bool = True) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.num_layers = len(self.layers)
        self.return_intermediate = return_intermediate

    def forward(
        self,
        query: Tensor,
        *args: Any,
        reference_points: Tensor,
        reg_branches: nn.ModuleList | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor]:
        """Decode the queries.

        Args:
            query: (N, B, C).
            reference_points: (B, N, 3) as (x, y, z), 0 to 1 in the BEV range.
            reg_branches: one box head per layer; None leaves the reference points as they are.
            kwargs: passed to the layers: `value`, `query_pos`, `spatial_shapes`, ...

        Returns:
            Queries (layers, N, B, C) and refined points (layers, B, N, 3); of the last layer only,
            without the first dimension, unless `return_intermediate`.
        """
        queries, points = [], []
        for index, layer in enumerate(self.layers):
            query = layer(query, *args, reference_points=reference_points[..., None, :2], **kwargs)
            if reg_branches is not None:
                box = reg_branches[index](query.permute(1, 0, 2))
                move = torch.cat([box[..., :2], box[..., 4:5]], -1)  # x, y and z of the box code
                reference_points = (move + inverse_sigmoid(reference_points)).sigmoid().detach()
            queries.append(query)
            points.append(reference_points)
        if self.return_intermediate:
            return torch.stack(queries), torch.stack(points)
        return query, reference_points
