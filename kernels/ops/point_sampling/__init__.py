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
from typing import NamedTuple

import torch
from torch import Tensor

from ... import _validate
from ..._operator import Operator


class Inputs(NamedTuple):
    """See `point_sampling`."""

    reference_points: Tensor
    lidar2img: Tensor
    pc_range: list[float]
    image_size: list[int]

    def check(self) -> None:
        """Raise what `point_sampling` says."""
        points, matrices = self.reference_points, self.lidar2img
        _validate.dtypes(self, ("reference_points", "lidar2img"))
        if points.dim() != 4 or points.shape[3] != 3:
            raise ValueError(f"reference_points must be (B, Z, Q, 3), not {tuple(points.shape)}")
        if matrices.dim() != 4 or tuple(matrices.shape[2:]) != (4, 4):
            raise ValueError(f"lidar2img must be (B, N, 4, 4), not {tuple(matrices.shape)}")
        if matrices.shape[0] != points.shape[0]:
            raise ValueError(
                f"lidar2img {tuple(matrices.shape)} and reference_points {tuple(points.shape)} "
                "must have the same batch size"
            )
        _validate.devices(self)
        if len(self.pc_range) != 6:
            raise ValueError(
                f"pc_range must be 3 minima and 3 maxima, not {len(self.pc_range)} numbers"
            )
        size = self.image_size
        if len(size) != 2 or min(size) < 1:
            raise ValueError(f"image_size must be a positive (height, width), not {list(size)}")

    def result(self) -> tuple[Tensor, Tensor]:
        """(N, B, Q, Z, 2) float32 and (N, B, Q, Z) bool, with numbers yet to be written."""
        batch, heights, queries, _ = self.reference_points.shape
        shape = (self.lidar2img.shape[1], batch, queries, heights)
        return (
            self.reference_points.new_empty((*shape, 2), dtype=torch.float32),
            self.reference_points.new_empty(shape, dtype=torch.bool),
        )

    def trivial_result(self) -> tuple[Tensor, Tensor] | None:
        """Empty tensors where there is no point or no camera."""
        if self.reference_points.numel() and self.lidar2img.numel():
            return None
        return self.result()


def _flops(points: list[int], matrices: list[int], *_: object) -> int:
    """Per camera and point: three rows of a matrix, two divisions each of x and y."""
    batch, heights, queries, _xyz = points
    return 22 * matrices[1] * batch * heights * queries


_operator = Operator("point_sampling", Inputs, results=2, flops=_flops)


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
        TypeError: a dtype, a layout, or what is no tensor or no number.
        RuntimeError: tensors on two devices; an input that requires a gradient while gradients
            are recorded.
    """
    _validate.refuse_gradient("reference_points", reference_points)
    _validate.refuse_gradient("lidar2img", lidar2img)
    points, visible = _operator(
        reference_points,
        lidar2img,
        [float(bound) for bound in pc_range],
        [int(size) for size in image_size],
    )
    return points, visible
