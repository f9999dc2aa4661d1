"""`ms_deform_attn` in PyTorch's own operators, for any device and any head dimension.

The sum over samples is an embedding bag: a bag per (batch, query, head), an entry per sample and
corner. The dot products of the incoming gradient with the corners give the gradients of locations
and weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from ...common import bilinear
from ...common.dtypes import sum_dtype
from . import Inputs

# Rows gathered at once in the backward pass. On the CPU its temporaries then stay in the cache, and
# are not returned to the system each time; a GPU wants few launches.
_ROWS_AT_ONCE_CPU = 1 << 14
_ROWS_AT_ONCE = 1 << 20


class _Samples(NamedTuple):
    table: Tensor
    """(B * S * H + 1, D): the values, and a row of zeros that every corner outside reads: zero
    times an infinite border pixel would not be zero."""
    rows: Tensor
    """(B, Q, H, L, P, 4) rows of the table."""
    corners: bilinear.Corners
    weights: Tensor
    """(B, Q, H, L, P) attention weights, zero for a sample that is all outside."""


def forward(inputs: Inputs) -> Tensor:
    """See `ms_deform_attn`."""
    samples = _samples(inputs)
    batch, queries = samples.rows.shape[:2]
    sums = embedding_bag(
        samples.rows.flatten(0, 2).flatten(1),
        samples.table,
        mode="sum",
        per_sample_weights=samples.corners.weighted(samples.weights).flatten(0, 2).flatten(1),
    )
    return sums.view(batch, queries, -1).to(inputs.value.dtype)


def backward(
    grad_out: Tensor, inputs: Inputs, wanted: Sequence[bool] = (True, True, True)
) -> tuple[Tensor | None, ...]:
    """The gradients of value, locations and weights, None where not wanted. As deterministic as
    `Tensor.index_add_` is."""
    value, shapes, _, locations, weights = inputs
    of_value, of_locations, of_weights = wanted
    table, rows, corners, sample_weights = _samples(inputs)
    dots, grad_table = _through_rows(
        grad_out.to(table.dtype).reshape(-1, value.shape[3]),
        table,
        rows.flatten(0, 2).flatten(1),
        corners.weighted(sample_weights).flatten(0, 2).flatten(1),
        of_value,
    )
    dots = dots.view(rows.shape)
    grad_locations = grad_weights = None
    if of_locations:
        # A location of 1 is the level's width in pixels.
        scale = sample_weights.unsqueeze(-1) * shapes.flip(-1).to(table.dtype)[:, None]
        slopes = torch.stack(corners.slopes(dots), -1)
        grad_locations = (slopes * scale).to(locations.dtype)
    if of_weights:
        grad_weights = (dots * corners.x * corners.y).sum(-1).to(weights.dtype)
    if grad_table is None:
        return None, grad_locations, grad_weights
    return grad_table[:-1].view(value.shape).to(value.dtype), grad_locations, grad_weights


def _samples(inputs: Inputs) -> _Samples:
    value, shapes, starts, locations, weights = inputs
    dtype = sum_dtype(value, locations, weights)
    batch, keys, heads, dim = value.shape
    table = torch.cat((value.reshape(-1, dim).to(dtype), value.new_zeros(1, dim, dtype=dtype)))
    size = shapes.to(torch.int64)[:, None]  # (L, 1, 2) as (height, width), over the points
    height, width = size.unbind(-1)
    x, y = (locations.to(dtype) * size.flip(-1) - 0.5).unbind(-1)
    # False for NaN. At -1 a sample reads nothing, but has the slope that grid_sample gives there.
    touches = (x >= -1) & (x < width) & (y >= -1) & (y < height)
    corners = bilinear.corners(x, y, touches, width, height)
    key = starts.to(torch.int64)[:, None, None] + corners.pixel
    item = torch.arange(batch, device=value.device).view(-1, 1, 1, 1, 1, 1)
    head = torch.arange(heads, device=value.device).view(-1, 1, 1, 1)
    rows = ((item * keys + key) * heads + head).where(corners.inside, table.shape[0] - 1)
    return _Samples(table, rows, corners, weights.to(dtype).where(touches, 0))


def _through_rows(
    grads: Tensor, table: Tensor, rows: Tensor, scale: Tensor, of_table: bool
) -> tuple[Tensor, Tensor | None]:
    """Back through `out[n] = sum over k of scale[n, k] * table[rows[n, k]]`.

    Returns the gradients of scale (the dot products of gradient and row) and of table.
    """
    dots = torch.empty_like(scale)
    grad_table = torch.zeros_like(table) if of_table else None
    at_once = _ROWS_AT_ONCE_CPU if table.device.type == "cpu" else _ROWS_AT_ONCE
    step = max(1, at_once // rows.shape[1])
    for first in range(0, rows.shape[0], step):
        part = slice(first, first + step)
        grad = grads[part].unsqueeze(1)
        torch.sum(table[rows[part]] * grad, -1, out=dots[part])
        if grad_table is not None:
            spread = (scale[part].unsqueeze(-1) * grad).flatten(0, 1)
            grad_table.index_add_(0, rows[part].flatten(), spread)
    return dots.masked_fill_(rows == table.shape[0] - 1, 0), grad_table
