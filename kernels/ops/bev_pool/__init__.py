"""BEV pooling: sum the features that fall into the same cell of a bird's-eye-view grid.

Source: Liu et al., "BEVFusion", ICRA 2023, section 3.3, after Philion and Fidler, "Lift, Splat,
Shoot", ECCV 2020. Features are sorted by cell; an interval is the rows of one cell:

    out[b, z, h, w, :] = sum over the rows i of the interval that lies there of x[i, :]

where (h, w, z, b) is `geometry` of the interval's first row. Cells without an interval are zero,
and so are the gradients of rows without one.

Sums are kept in float32, in float64 when `x` is float64. Autocast casts nothing here.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ... import _validate
from ..._operator import Operator


class Inputs(NamedTuple):
    """See `bev_pool`."""

    x: Tensor
    geometry: Tensor
    interval_lengths: Tensor
    interval_starts: Tensor
    batch: int
    depth: int
    height: int
    width: int

    @property
    def grid(self) -> tuple[int, int, int, int]:
        """(batch, depth, height, width)."""
        return self.batch, self.depth, self.height, self.width

    def check(self) -> None:
        """Raise what `bev_pool` says, of what shapes, dtypes and devices tell."""
        _validate.dtypes(self, ("x",))
        _validate.dtypes(
            self, ("geometry", "interval_lengths", "interval_starts"), _validate.INDICES
        )
        _validate.rank("x", self.x, "(N, C)")
        _validate.rank("interval_starts", self.interval_starts, "(I,)")
        _validate.shapes(
            self,
            ("x", "interval_starts"),
            {
                "geometry": (self.x.shape[0], 4),
                "interval_lengths": (self.interval_starts.shape[0],),
            },
        )
        _validate.devices(self)
        if min(self.grid) < 0:
            raise ValueError(f"batch, depth, height and width must not be negative: {self.grid}")

    def result(self) -> Tensor:
        """(batch, depth, height, width, C), with numbers yet to be written."""
        return self.x.new_empty(*self.grid, self.x.shape[1])

    def trivial_result(self) -> Tensor | None:
        """Zeros where nothing is summed."""
        if self.x.numel() and self.interval_starts.numel() and min(self.grid):
            return None
        return self.result().zero_()

    def cells(self) -> Tensor:
        """(N,) int64, the flat index of each row's cell."""
        row, column, level, item = self.geometry.to(torch.int64).unbind(1)
        return ((item * self.depth + level) * self.height + row) * self.width + column


def _check_values(inputs: Inputs) -> None:
    """Intervals must lie in the rows, one behind the other, and their cells in the grid."""
    if inputs.x.device.type != "cpu" or not inputs.interval_starts.numel():
        return
    starts = inputs.interval_starts.to(torch.int64)
    ends = starts + inputs.interval_lengths
    rows = inputs.x.shape[0]
    if starts.min() < 0 or ends.max() > rows or (inputs.interval_lengths < 1).any():
        raise ValueError(f"intervals must have a row or more, of the {rows} rows of x")
    if (starts[1:] < ends[:-1]).any():
        raise ValueError("intervals must lie one behind the other: interval_starts is not sorted")
    first = inputs.geometry[starts]
    limits = torch.tensor([inputs.height, inputs.width, inputs.depth, inputs.batch])
    if (first < 0).any() or (first >= limits).any():
        raise ValueError(
            f"geometry (h, w, z, b) must lie within {tuple(limits.tolist())}, not reach from "
            f"{tuple(first.amin(0).tolist())} to {tuple(first.amax(0).tolist())}"
        )


_operator = Operator(
    "bev_pool",
    Inputs,
    gradients=("x",),
    check_values=_check_values,
    flops=lambda x, *_: x[0] * x[1],
)


def bev_pool(
    x: Tensor,
    geometry: Tensor,
    interval_lengths: Tensor,
    interval_starts: Tensor,
    batch: int,
    depth: int,
    height: int,
    width: int,
) -> Tensor:
    """Sum the rows of each interval into its cell.

    Args:
        x: (N, C) features, float16, bfloat16, float32 or float64, sorted by cell.
        geometry: (N, 4) integers, each row's cell as (h, w, z, b).
        interval_lengths: (I,) integers, how many rows an interval has.
        interval_starts: (I,) integers, each interval's first row, ascending. No two intervals may
            lie in one cell.
        batch, depth, height, width: of the grid.

    Returns:
        (batch, depth, height, width, C) in the dtype of `x`.

    Raises:
        ValueError: a shape; intervals or cells that do not lie where they must (seen for CPU
            tensors only: elsewhere, cells outside of the grid are left out).
        TypeError: a dtype, a layout, or what is no tensor or no integer.
        RuntimeError: tensors on several devices; a second or a forward-mode derivative.
    """
    out: Tensor = _operator(
        x, geometry, interval_lengths, interval_starts, batch, depth, height, width
    )
    return out


def bev_pool_backward(
    grad_out: Tensor,
    x: Tensor,
    geometry: Tensor,
    interval_lengths: Tensor,
    interval_starts: Tensor,
) -> Tensor:
    """The gradient of `bev_pool` for `x`, given that of its result.

    Args:
        grad_out: (batch, depth, height, width, C), any floating dtype; the others as there. Of `x`
            only shape, dtype and device count.
    """
    grad: Tensor
    (grad,) = _operator.backward(
        grad_out, x, geometry, interval_lengths, interval_starts, *grad_out.shape[:4]
    )
    return grad
