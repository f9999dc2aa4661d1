"""Learned positional encoding of a BEV map."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LearnedPositionalEncoding(nn.Module):
    """One learned vector per row and one per column, joined.

    Args:
        num_feats: channels of each vector; the encoding has twice as many.
        row_num_embed, col_num_embed: rows and columns.
    """

    def __init__(self, num_feats: int, row_num_embed: int, col_num_embed: int) -> None:
        super().__init__()
        self.row_embed = nn.Embedding(row_num_embed, num_feats)
        self.col_embed = nn.Embedding(col_num_embed, num_feats)
        nn.init.uniform_(self.row_embed.weight)
        nn.init.uniform_(self.col_embed.weight)

    def forward(self, batch: int) -> Tensor:
        """(batch, 2 * num_feats, rows, columns)."""
        rows, columns = self.row_embed.weight, self.col_embed.weight
        x = columns[None].expand(len(rows), -1, -1)
        y = rows[:, None].expand(-1, len(columns), -1)
        return torch.cat([x, y], -1).permute(2, 0, 1).repeat(batch, 1, 1, 1)
