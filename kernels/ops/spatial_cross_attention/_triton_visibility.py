"""Which cameras see a program's queries, as bit masks, for Triton kernels that loop over cameras.

A loop then reads no visibility, and skips the cameras that see no query of the program.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from ...common.triton.attention import in_row_layout

_MOST_CAMERAS = 16  # in one mask; more are taken in groups


def camera_groups(cameras: int) -> tuple[int, int]:
    """How many groups of cameras, and how many cameras a group has: a power of two."""
    size = min(_MOST_CAMERAS, triton.next_power_of_2(cameras))
    return triton.cdiv(cameras, size), size


@triton.jit
def seeing(
    visibility_ptr,
    stride,
    query,
    first,
    cameras,
    heights,
    CAMERAS: tl.constexpr,
):
    """(CAMERAS, ROWS), 1 where the camera `first` + i sees the row's query at any height.

    Args:
        visibility_ptr: the first camera's first query; `stride` leads to the next camera.
    """
    camera = first + tl.arange(0, CAMERAS)[:, None]
    flags = visibility_ptr + camera.to(tl.int64) * stride + query[None, :] * heights
    seen = tl.zeros(flags.shape, tl.int32)
    for height in range(heights):
        seen |= (tl.load(flags + height, camera < cameras, other=0) != 0).to(tl.int32)
    return seen


@triton.jit
def count_seeing(
    visibility_ptr,
    stride,
    query,
    cameras,
    heights,
    GROUPS: tl.constexpr,
    CAMERAS: tl.constexpr,
):
    """(ROWS,) float32, how many cameras see the row's query, at least 1."""
    count = tl.full(query.shape, 0, tl.int32)
    for group in range(GROUPS):
        flags = seeing(visibility_ptr, stride, query, group * CAMERAS, cameras, heights, CAMERAS)
        count += tl.sum(flags, 0)
    return in_row_layout(tl.maximum(count, 1).to(tl.float32))


@triton.jit
def masks(seeing, CAMERAS: tl.constexpr):
    """A bit mask of each row's cameras, and one of the cameras of any row."""
    bit = tl.arange(0, CAMERAS)
    rows = in_row_layout(tl.sum(seeing << bit[:, None], 0))
    return rows, tl.sum(tl.max(seeing, 1) << bit, 0)


@triton.jit
def first_bit(mask):
    """The number of the lowest bit that is set (of 31): a float's exponent."""
    return ((mask & -mask).to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127
