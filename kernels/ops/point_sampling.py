"""Point sampling: where the cameras see the points of BEV pillars, and which of them they see.

Source: Li et al., "BEVFormer", ECCV 2022, section 3.3. For camera n, batch item b, query q and
height z

    p       = reference_points[b, z, q] * (high - low) + low             metres, `pc_range`
    u, v, d = the first three rows of lidar2img[b, n] @ (p, 1)
    x, y    = (u, v) / max(d, 1e-5) / (width, height)
    visible = d > 1e-5  and  0 < x < 1  and  0 < y < 1

Rounded as the usual formulation is rounded in float32 on a CPU: p after its product and after its
sum, then ((m0 * px + m1 * py) + m2 * pz) + m3 after every operation with nothing fused, then two
true divisions. All backends give these bits, on every device. A GPU's matrix library may fuse or
reorder the sums, and torch divides by a number there by multiplying with its reciprocal: against
the formulation run on a GPU, coordinates can differ in their last bits.

A NaN makes its coordinates NaN and the point invisible. Nothing here is differentiable: both inputs
are constants of the scene.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from . import _checks, point_sampling_cpu, point_sampling_torch
from ._dispatch import uses_cpu_library, uses_triton


def point_sampling(
    reference_points: Tensor,
    lidar2img: Tensor,
    pc_range: Sequence[float],
    image_size: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Project pillar points into every camera of their batch item, in float32.

    Args:
        reference_points: (B, Z, Q, 3) as (x, y, z), 0 to 1 across `pc_range`. 16-bit points are
            widened to float32; float64 ones are scaled to metres in float64 and then rounded.
        lidar2img: (B, N, 4, 4), from metres to pixels times depth; rounded to float32.
        pc_range: x, y, z minimum, then maximum, in metres.
        image_size: (height, width) of every image, in pixels.

    Both tensors are float16, bfloat16, float32 or float64, each of its own dtype.

    Returns:
        Points (N, B, Q, Z, 2) float32 as (x, y), 0 to 1 across the image, and whether the camera
        sees them, (N, B, Q, Z) bool.

    Raises:
        ValueError: a shape, or the number of `pc_range` or `image_size`.
        TypeError: a dtype.
        RuntimeError: tensors on two devices; an input that requires a gradient while gradients
            are recorded.
    """
    _checks.refuse_gradient("reference_points", reference_points)
    _checks.refuse_gradient("lidar2img", lidar2img)
    points, visible = _forward(
        reference_points,
        lidar2img,
        [float(bound) for bound in pc_range],
        [int(size) for size in image_size],
    )
    return points, visible


@torch.library.custom_op("turbo_physai::point_sampling", mutates_args=())
def _forward(
    reference_points: Tensor,
    lidar2img: Tensor,
    pc_range: Sequence[float],
    image_size: Sequence[int],
) -> tuple[Tensor, Tensor]:
    _check(reference_points, lidar2img, pc_range, image_size)
    if reference_points.numel() == 0 or lidar2img.numel() == 0:
        return _empty(reference_points, lidar2img)
    inputs = (reference_points, lidar2img, pc_range, image_size)
    if uses_triton(reference_points):
        from . import point_sampling_triton

        return point_sampling_triton.forward(*inputs)
    if uses_cpu_library("point_sampling", reference_points):
        return point_sampling_cpu.forward(*inputs)
    return point_sampling_torch.forward(*inputs)


@_forward.register_fake
def _forward_fake(
    reference_points: Tensor,
    lidar2img: Tensor,
    pc_range: Sequence[float],
    image_size: Sequence[int],
) -> tuple[Tensor, Tensor]:
    _check(reference_points, lidar2img, pc_range, image_size)
    return _empty(reference_points, lidar2img)


def _empty(reference_points: Tensor, lidar2img: Tensor) -> tuple[Tensor, Tensor]:
    batch, heights, queries, _ = reference_points.shape
    shape = (lidar2img.shape[1], batch, queries, heights)
    return (
        reference_points.new_empty((*shape, 2), dtype=torch.float32),
        reference_points.new_empty(shape, dtype=torch.bool),
    )


def _check(
    reference_points: Tensor,
    lidar2img: Tensor,
    pc_range: Sequence[float],
    image_size: Sequence[int],
) -> None:
    """Refuse what no backend computes, from shapes, dtypes and devices: no device is waited for."""
    for name, tensor in (("reference_points", reference_points), ("lidar2img", lidar2img)):
        _checks.check_dtype(name, tensor, _checks.FLOATS)
    if reference_points.dim() != 4 or reference_points.shape[3] != 3:
        raise ValueError(
            f"reference_points must be (B, Z, Q, 3), not {tuple(reference_points.shape)}"
        )
    if lidar2img.dim() != 4 or tuple(lidar2img.shape[2:]) != (4, 4):
        raise ValueError(f"lidar2img must be (B, N, 4, 4), not {tuple(lidar2img.shape)}")
    if lidar2img.shape[0] != reference_points.shape[0]:
        raise ValueError(
            f"lidar2img {tuple(lidar2img.shape)} and reference_points "
            f"{tuple(reference_points.shape)} must have the same batch size"
        )
    if lidar2img.device != reference_points.device:
        raise RuntimeError(
            f"lidar2img is on {lidar2img.device}, reference_points on {reference_points.device}"
        )
    if len(pc_range) != 6:
        raise ValueError(f"pc_range must be 3 minima and 3 maxima, not {len(pc_range)} numbers")
    if len(image_size) != 2 or min(image_size) < 1:
        raise ValueError(f"image_size must be a positive (height, width), not {list(image_size)}")
