"""`ms_deform_attn` in PyTorch's own operators, for devices that have no fused kernel.

The sum over samples is an embedding bag: a bag per (batch, query, head), an entry per sample and
corner. The dot products of the incoming gradient with the corners give the gradients of locations
and weights.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from ._dispatch import sum_dtype

# Rows gathered at once in the backward pass. On the CPU its temporaries then stay in the cache, and
# are not returned to the system each time; a GPU wants few launches.
_ROWS_AT_ONCE_CPU = 1 << 14
_ROWS_AT_ONCE = 1 << 20


class _Corners(NamedTuple):
    """Each sample's corners in the order (y0, x0), (y0, x1), (y1, x0), (y1, x1)."""

    rows: Tensor  # (B, Q, H, L, P, 4) rows of the flat table of values; its last row means outside
    x: Tensor  # (B, Q, H, L, P, 4) bilinear factors along x
    y: Tensor  # (B, Q, H, L, P, 4) bilinear factors along y
    weights: Tensor  # (B, Q, H, L, P) attention weights, zero for a sample that is all outside


def forward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    """See `ms_deform_attn`."""
    batch, _, heads, dim = value.shape
    queries = sampling_locations.shape[1]
    table = _table(value, sum_dtype(value, sampling_locations, attention_weights))
    corners = _corners(
        table, value, spatial_shapes, level_start_index, sampling_locations, attention_weights
    )
    scale = corners.x * corners.y * corners.weights.unsqueeze(-1)
    bags = batch * queries * heads
    out = embedding_bag(
        corners.rows.reshape(bags, -1),
        table,
        mode="sum",
        per_sample_weights=scale.reshape(bags, -1),
    )
    return out.view(batch, queries, heads * dim).to(value.dtype)


def backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `ms_deform_attn_backward`. As deterministic as `Tensor.index_add_` is."""
    table = _table(value, sum_dtype(value, sampling_locations, attention_weights))
    corners = _corners(
        table, value, spatial_shapes, level_start_index, sampling_locations, attention_weights
    )
    factors = corners.x * corners.y
    dots, grad_table = _through_rows(
        grad_out.to(table.dtype).reshape(-1, value.shape[3]),
        table,
        corners.rows.flatten(0, 2).flatten(1),
        (factors * corners.weights.unsqueeze(-1)).flatten(0, 2).flatten(1),
    )
    dots = dots.view_as(factors)
    # A corner's factor along x is x1 - x or x - x0: it changes by -1 or +1 a pixel, and a location
    # of 1 is the level's width in pixels. The same along y.
    along_x = (dots * corners.y * dots.new_tensor([-1.0, 1.0, -1.0, 1.0])).sum(-1)
    along_y = (dots * corners.x * dots.new_tensor([-1.0, -1.0, 1.0, 1.0])).sum(-1)
    sizes = spatial_shapes.flip(-1).to(table.dtype)[:, None]
    grad_locations = torch.stack((along_x, along_y), -1) * corners.weights.unsqueeze(-1) * sizes
    return (
        grad_table[:-1].view(value.shape).to(value.dtype),
        grad_locations.to(sampling_locations.dtype),
        (dots * factors).sum(-1).to(attention_weights.dtype),
    )


def _table(value: Tensor, dtype: torch.dtype) -> Tensor:
    """(B * S * H + 1, D): the values, and a row of zeros that every corner outside reads.

    A row of its own, because zero times an infinite border pixel would not be zero.
    """
    dim = value.shape[3]
    return torch.cat((value.reshape(-1, dim).to(dtype), value.new_zeros(1, dim, dtype=dtype)))


def _corners(
    table: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> _Corners:
    batch, keys, heads, _ = value.shape
    size = spatial_shapes.to(torch.int64)[:, None]  # (L, 1, 2) as (height, width), over the points
    height, width = size.unbind(-1)
    x, y = (sampling_locations.to(table.dtype) * size.flip(-1) - 0.5).unbind(-1)
    # False for NaN. At -1 a sample reads nothing, but has the slope that grid_sample gives there.
    touches = (x >= -1) & (x < width) & (y >= -1) & (y < height)
    x, y = x.where(touches, 0), y.where(touches, 0)
    weights = attention_weights.to(table.dtype).where(touches, 0)

    x0, y0 = x.floor(), y.floor()
    fx, fy = x - x0, y - y0
    column = torch.stack((x0, x0 + 1, x0, x0 + 1), -1).to(torch.int64)
    line = torch.stack((y0, y0, y0 + 1, y0 + 1), -1).to(torch.int64)
    inside = (
        touches.unsqueeze(-1)
        & (column >= 0)
        & (column < width.unsqueeze(-1))
        & (line >= 0)
        & (line < height.unsqueeze(-1))
    )
    key = level_start_index.to(torch.int64)[:, None, None] + line * width.unsqueeze(-1) + column
    item = torch.arange(batch, device=value.device).view(-1, 1, 1, 1, 1, 1)
    head = torch.arange(heads, device=value.device).view(-1, 1, 1, 1)
    rows = ((item * keys + key) * heads + head).where(inside, table.shape[0] - 1)
    return _Corners(
        rows,
        torch.stack((1 - fx, fx, 1 - fx, fx), -1),
        torch.stack((1 - fy, 1 - fy, fy, fy), -1),
        weights,
    )


def _through_rows(
    grads: Tensor, table: Tensor, rows: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Back through `out[n] = sum over k of scale[n, k] * table[rows[n, k]]`.

    Returns the gradients of scale (the dot products of gradient and row) and of table.
    """
    dots = torch.empty_like(scale)
    grad_table = torch.zeros_like(table)
    at_once = _ROWS_AT_ONCE_CPU if table.device.type == "cpu" else _ROWS_AT_ONCE
    step = max(1, at_once // rows.shape[1])
    for first in range(0, rows.shape[0], step):
        part = slice(first, first + step)
        grad = grads[part].unsqueeze(1)
        torch.sum(table[rows[part]] * grad, -1, out=dots[part])
        spread = (scale[part].unsqueeze(-1) * grad).flatten(0, 1)
        grad_table.index_add_(0, rows[part].flatten(), spread)
    return dots.masked_fill_(rows == table.shape[0] - 1, 0), grad_table
