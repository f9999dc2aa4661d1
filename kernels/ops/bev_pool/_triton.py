"""`bev_pool` in Triton: a program an interval, all channels. Nothing is read on the host."""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...common.triton import launch
from . import Inputs

_SIZES = ["channels", "batch", "depth", "height", "width"]
_ROWS = 8
"""Rows read at once."""


def forward(inputs: Inputs) -> Tensor:
    """See `bev_pool`; the dtypes are those in `launch.DTYPES`."""
    launch.check_dtypes(inputs.x)
    out = inputs.result().zero_()
    _launch(forward_kernel, out, inputs.x.contiguous(), inputs)
    return out


def backward(
    grad_out: Tensor, inputs: Inputs, wanted: Sequence[bool] = (True,)
) -> tuple[Tensor | None]:
    """The gradient of `x`."""
    launch.check_dtypes(grad_out, inputs.x)
    grad = torch.zeros(inputs.x.shape, dtype=inputs.x.dtype, device=inputs.x.device)
    _launch(backward_kernel, grad, grad_out.contiguous(), inputs)
    return (grad,)


def constants(channels: int) -> dict[str, int]:
    """What the kernels are compiled for."""
    return {"LANES": min(256, int(triton.next_power_of_2(channels))), "ROWS": _ROWS}


def _launch(kernel: triton.JITFunction, to: Tensor, source: Tensor, inputs: Inputs) -> None:
    channels = inputs.x.shape[1]
    numbers = constants(channels)
    grid = (inputs.interval_starts.shape[0], triton.cdiv(channels, numbers["LANES"]))
    with launch.device_of(inputs.x):
        kernel[grid](
            to,
            source,
            inputs.geometry.contiguous(),
            inputs.interval_lengths.contiguous(),
            inputs.interval_starts.contiguous(),
            channels,
            *inputs.grid,
            **numbers,
            **launch.options(1),
        )


@triton.jit(do_not_specialize=_SIZES)
def forward_kernel(
    out_ptr,
    x_ptr,
    geometry_ptr,
    lengths_ptr,
    starts_ptr,
    channels,
    batch,
    depth,
    height,
    width,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Sums are float32."""
    start, cell, length, inside = _interval(
        geometry_ptr, lengths_ptr, starts_ptr, batch, depth, height, width
    )
    channel = tl.program_id(1) * LANES + tl.arange(0, LANES)
    row = tl.arange(0, ROWS)
    rows = x_ptr + (start + row)[:, None] * channels + channel[None, :]
    total = tl.zeros((ROWS, LANES), tl.float32)
    for _ in range(0, length, ROWS):
        there = (row < length)[:, None] & (channel < channels)[None, :]
        total += tl.load(rows, there, other=0).to(tl.float32)
        rows += ROWS * channels
        length -= ROWS
    out = tl.sum(total, 0).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + cell * channels + channel, out, channel < tl.where(inside, channels, 0))


@triton.jit(do_not_specialize=_SIZES)
def backward_kernel(
    grad_x_ptr,
    grad_out_ptr,
    geometry_ptr,
    lengths_ptr,
    starts_ptr,
    channels,
    batch,
    depth,
    height,
    width,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Every row of the interval gets the gradient of its cell."""
    start, cell, length, inside = _interval(
        geometry_ptr, lengths_ptr, starts_ptr, batch, depth, height, width
    )
    channel = tl.program_id(1) * LANES + tl.arange(0, LANES)
    used = channel < tl.where(inside, channels, 0)
    grad = tl.load(grad_out_ptr + cell * channels + channel, used, other=0)
    grad = tl.broadcast_to(grad.to(grad_x_ptr.dtype.element_ty)[None, :], (ROWS, LANES))
    row = tl.arange(0, ROWS)
    rows = grad_x_ptr + (start + row)[:, None] * channels + channel[None, :]
    for _ in range(0, length, ROWS):
        tl.store(rows, grad, (row < length)[:, None] & used[None, :])
        rows += ROWS * channels
        length -= ROWS


@triton.jit
def _interval(geometry_ptr, lengths_ptr, starts_ptr, batch, depth, height, width):
    """The program's interval: first row and cell (int64), length, whether it is in the grid."""
    start = tl.load(starts_ptr + tl.program_id(0)).to(tl.int64)
    length = tl.load(lengths_ptr + tl.program_id(0)).to(tl.int32)
    row = tl.load(geometry_ptr + 4 * start).to(tl.int64)
    column = tl.load(geometry_ptr + 4 * start + 1).to(tl.int64)
    level = tl.load(geometry_ptr + 4 * start + 2).to(tl.int64)
    item = tl.load(geometry_ptr + 4 * start + 3).to(tl.int64)
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    inside &= (level >= 0) & (level < depth) & (item >= 0) & (item < batch)
    return start, ((item * depth + level) * height + row) * width + column, length, inside
