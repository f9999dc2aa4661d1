"""What encoder and decoder layers share: attention, norm, feed-forward, each with its residual."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

OPERATION_ORDER = ("self_attn", "norm", "cross_attn", "norm", "ffn", "norm")


class FFN(nn.Module):
    """Two Linears with a ReLU between; dropout and residual included."""

    def __init__(self, embed_dims: int, feedforward_channels: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Sequential(
                nn.Linear(embed_dims, feedforward_channels),
                nn.ReLU(inplace=True),
                nn.Dropout(dropout),
            ),
            nn.Linear(feedforward_channels, embed_dims),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor, identity: Tensor | None = None) -> Tensor:
        return (x if identity is None else identity) + self.layers(x)


class MultiheadAttention(nn.Module):
    """Plain attention among object queries (Q, B, C); dropout and residual included."""

    def __init__(self, embed_dims: int, num_heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed_dims = embed_dims
        self.attn = nn.MultiheadAttention(embed_dims, num_heads, dropout)
        self.dropout_layer = nn.Dropout(dropout)

    def forward(
        self, query: Tensor, *args: Any, query_pos: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        placed = query if query_pos is None else query + query_pos
        attended = self.attn(placed, placed, query, need_weights=False)[0]
        return query + self.dropout_layer(attended)


class TransformerLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward, a LayerNorm behind each.

    Args:
        self_attention: module called with the query.
        cross_attention: module called with query, key and value.
        embed_dims: channels C.
        feedforward_channels: hidden channels of the feed-forward part.
        dropout: probability inside the feed-forward part.
    """

    def __init__(
        self,
        self_attention: nn.Module,
        cross_attention: nn.Module,
        embed_dims: int,
        feedforward_channels: int,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.embed_dims = embed_dims
        self.operation_order = OPERATION_ORDER
        self.pre_norm = False
        self.num_attn = 2
        self.attentions = nn.ModuleList([self_attention, cross_attention])
        self.ffns = nn.ModuleList([FFN(embed_dims, feedforward_channels, dropout)])
        self.norms = nn.ModuleList([nn.LayerNorm(embed_dims) for _ in range(3)])
