"""`point_sampling` in Triton.

A program owns a block of the points of one batch item, in the order of the results, in one camera.
It writes 9 bytes a point; the points themselves come from the L2 cache for all cameras but one.
Products and sums are not fused and divisions are true ones, so that the bits are those of the CPU.
Nothing is read on the host, so launches can be recorded into CUDA graphs.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...common.triton import launch
from ...common.triton.sampling import pack, pair_pointer
from . import Inputs

BLOCK: Final = 256
OPTIONS: Final = {"num_warps": 2, "enable_fp_fusion": False}


def forward(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """See `point_sampling`; the dtypes of the points are those in `launch.DTYPES`."""
    reference_points, lidar2img, pc_range, image_size = inputs
    launch.check_dtypes(reference_points)
    batch, heights, queries, _ = reference_points.shape
    cameras = lidar2img.shape[1]
    points, visible = inputs.result()
    if visible.numel() == 0:
        return points, visible
    if queries * heights > 2**31 - BLOCK:
        raise ValueError(f"Q * Z must be at most 2**31 - {BLOCK}, not {queries * heights}")
    low, high = pc_range[:3], pc_range[3:]
    height, width = image_size
    with launch.device_of(reference_points):
        _kernel[(cameras * batch * triton.cdiv(queries * heights, BLOCK),)](
            points,
            visible.view(torch.uint8),
            reference_points.contiguous(),
            lidar2img.contiguous(),
            *(float(bound) for bound in low),
            *(float(b - a) for a, b in zip(low, high, strict=True)),
            float(width),
            float(height),
            batch,
            cameras,
            queries,
            HEIGHTS=heights,
            BLOCK=BLOCK,
            **OPTIONS,
        )
    return points, visible


@triton.jit
def _kernel(
    points_ptr,
    visible_ptr,
    pillars_ptr,
    lidar2img_ptr,
    low_x,
    low_y,
    low_z,
    extent_x,
    extent_y,
    extent_z,
    width,
    height,
    batch,
    cameras,
    queries,
    HEIGHTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    size = queries * HEIGHTS
    blocks = tl.cdiv(size, BLOCK)
    program = tl.program_id(0)
    view = program // blocks  # camera * batch + item
    item = view % batch
    at = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    there = at < size

    row = (at % HEIGHTS).to(tl.int64) * queries + at // HEIGHTS
    pillar = pillars_ptr + (item.to(tl.int64) * size + row) * 3
    x = tl.load(pillar, there, 0.0).to(tl.float32) * extent_x + low_x
    y = tl.load(pillar + 1, there, 0.0).to(tl.float32) * extent_y + low_y
    z = tl.load(pillar + 2, there, 0.0).to(tl.float32) * extent_z + low_z

    matrix = lidar2img_ptr + (item.to(tl.int64) * cameras + view // batch) * 16
    depth = _project(matrix + 8, x, y, z)
    nearest = tl.where(depth <= 1e-5, 1e-5, depth)  # NaN stays
    u = tl.div_rn(tl.div_rn(_project(matrix, x, y, z), nearest), width)
    v = tl.div_rn(tl.div_rn(_project(matrix + 4, x, y, z), nearest), height)
    visible = (depth > 1e-5) & (v > 0.0) & (v < 1.0) & (u < 1.0) & (u > 0.0)

    to = view.to(tl.int64) * size + at
    tl.store(pair_pointer(points_ptr) + to, pack(u, v, tl.float32), there)
    tl.store(visible_ptr + to, visible.to(tl.uint8), there)


@triton.jit
def _project(row, x, y, z):
    """One row of a matrix times (x, y, z, 1)."""
    total = tl.load(row).to(tl.float32) * x + tl.load(row + 1).to(tl.float32) * y
    total += tl.load(row + 2).to(tl.float32) * z
    return total + tl.load(row + 3).to(tl.float32)
