"""Spatial cross-attention: bird's-eye-view queries look into the cameras that see them.

Source: Li et al., "BEVFormer", ECCV 2022, equation 4, with the deformable attention of Zhu et al.,
"Deformable DETR", ICLR 2021. For batch item b, query q, head h

    out[b, q, h, :] = 1 / max(1, count) * sum over cameras n that see q, levels l and points p of
        softmax(logits[b, q, h])[l, p] * bilinear(value[b, n, level l, h, :], location[n, l, p])
    location[n, l, p] =
        reference_points_cam[n, b, q, p % Z] + offsets[b, q, h, l, p] / (width, height)

A camera sees a query when any of the query's Z heights is visible to it, and count is the number of
those cameras. Pixels, borders, sums, dtypes and autocast are as in `ms_deform_attn`. A query that
no camera sees gets zeros.

Offsets and logits belong to the query, so no camera needs copies of them, and the list of queries
that a camera sees never leaves the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ... import _validate
from ..._operator import Operator


class Inputs(NamedTuple):
    """See `spatial_cross_attention`."""

    value: Tensor
    spatial_shapes: Tensor
    level_start_index: Tensor
    offsets: Tensor
    logits: Tensor
    reference_points_cam: Tensor
    visibility: Tensor
    first_item_visibility: bool = False

    def check(self) -> None:
        """Raise what `spatial_cross_attention` says, of what shapes, dtypes and devices tell."""
        _validate.dtypes(self, ("value", "offsets", "logits", "reference_points_cam"))
        _validate.dtypes(self, ("spatial_shapes", "level_start_index"), _validate.INDICES)
        _validate.dtypes(self, ("visibility",), _validate.FLAGS)
        _validate.rank("value", self.value, "(B, N, S, H, D)")
        _validate.rank("offsets", self.offsets, "(B, Q, H, L, P, 2)")
        _validate.rank("reference_points_cam", self.reference_points_cam, "(N, B, Q, Z, 2)")
        batch, cameras, _, heads, _ = self.value.shape
        _, queries, _, levels, points, _ = self.offsets.shape
        heights = self.reference_points_cam.shape[3]
        _validate.shapes(
            self,
            ("value", "offsets"),
            {
                "offsets": (batch, queries, heads, levels, points, 2),
                "logits": (batch, queries, heads, levels * points),
                "reference_points_cam": (cameras, batch, queries, heights, 2),
                "visibility": (cameras, batch, queries, heights),
                "spatial_shapes": (levels, 2),
                "level_start_index": (levels,),
            },
        )
        _validate.devices(self)
        if heights and points % heights:
            raise ValueError(
                f"offsets must have a multiple of {heights} points, the number of heights of "
                f"reference_points_cam, not {points}"
            )

    def result(self) -> Tensor:
        """(B, Q, H * D), with numbers yet to be written."""
        batch, _, _, heads, dim = self.value.shape
        return self.value.new_empty(batch, self.offsets.shape[1], heads * dim)

    def trivial_result(self) -> Tensor | None:
        """Zeros where there is no sample."""
        if self.value.numel() and self.logits.numel() and self.visibility.numel():
            return None
        return self.result().zero_()


def _flops(value: list[int], shapes: object, starts: object, offsets: list[int], *_: object) -> int:
    """As `ms_deform_attn`, for one camera a query: how many see it only the numbers tell."""
    batch, queries, heads, levels, points = offsets[:5]
    return 8 * batch * queries * heads * levels * points * value[-1]


_operator = Operator(
    "spatial_cross_attention",
    Inputs,
    gradients=("value", "offsets", "logits"),
    check_values=_validate.levels,
    limit=_validate.head_dim_limit,
    flops=_flops,
)


def spatial_cross_attention(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points_cam: Tensor,
    visibility: Tensor,
    *,
    first_item_visibility: bool = False,
) -> Tensor:
    """Sample the cameras that see a query around its projections, and average over them.

    Args:
        value: (B, N, S, H, D) of N cameras, the levels one after the other in S; any D (see
            `ms_deform_attn`).
        spatial_shapes: (L, 2) integers, each level's (height, width).
        level_start_index: (L,) integers, each level's first row in S.
        offsets: (B, Q, H, L, P, 2) as (x, y) in pixels of their level; P a multiple of Z.
        logits: (B, Q, H, L * P), before the softmax.
        reference_points_cam: (N, B, Q, Z, 2) as (x, y), 0 to 1 across the image; has no gradient.
        visibility: (N, B, Q, Z) bool or integers, zero where the camera does not see the point.
        first_item_visibility: sum over the cameras that see the query in the *first* item of the
            batch, and divide by each item's own count, as the official BEVFormer does.

    Floating-point inputs are float16, bfloat16, float32 or float64, each of its own dtype.

    Returns:
        (B, Q, H * D) in the dtype of `value`.

    Raises:
        ValueError: a shape, or a level that does not lie inside `value` (seen for CPU tensors only:
            reading it elsewhere would wait for the device).
        TypeError: a dtype, a layout, or what is no tensor.
        RuntimeError: tensors on several devices; reference points that require a gradient; a second
            or a forward-mode derivative.
    """
    _validate.refuse_gradient("reference_points_cam", reference_points_cam)
    out: Tensor = _operator(
        value,
        spatial_shapes,
        level_start_index,
        offsets,
        logits,
        reference_points_cam,
        visibility,
        first_item_visibility,
    )
    return out


def spatial_cross_attention_backward(
    grad_out: Tensor,
    *inputs: Tensor,
    first_item_visibility: bool = False,
    wanted: Sequence[bool] = (True, True, True),
) -> tuple[Tensor | None, ...]:
    """The gradients of `spatial_cross_attention`, given that of its result.

    Args:
        grad_out: (B, Q, H * D), any floating dtype.
        inputs: the seven tensors of `spatial_cross_attention`.
        first_item_visibility: as there.
        wanted: which of the gradients, in the order in which they are returned.

    Returns:
        One gradient each for value, offsets and logits, in their dtypes; None where not
        wanted.
    """
    return _operator.backward(grad_out, *inputs, first_item_visibility, wanted=wanted)
