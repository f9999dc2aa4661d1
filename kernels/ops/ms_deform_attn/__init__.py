"""Multi-scale deformable attention.

Source: Zhu et al., "Deformable DETR", ICLR 2021, equation 3. For batch item b, query q, head h

    out[b, q, h, :] = sum over levels l and points p of
        weights[b, q, h, l, p] * bilinear(value[b, level l, h, :], locations[b, q, h, l, p])

A location (x, y) stands for the pixel (x * width - 0.5, y * height - 0.5). A corner outside of its
level counts as zero, whatever the weight. A sample that touches no pixel, infinite and NaN
locations included, adds nothing and gets zero gradients. (One that lies just one pixel before its
level gets the slope that `grid_sample` gives there.)

Sums are kept in float32, in float64 when an input is float64; every gradient has its input's dtype.
Autocast casts nothing here: dtypes may be mixed, so 16-bit values go with exact locations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ... import _validate
from ..._operator import Operator


class Inputs(NamedTuple):
    """See `ms_deform_attn`."""

    value: Tensor
    spatial_shapes: Tensor
    level_start_index: Tensor
    sampling_locations: Tensor
    attention_weights: Tensor

    def check(self) -> None:
        """Raise what `ms_deform_attn` says, of what shapes, dtypes and devices tell."""
        _validate.dtypes(self, ("value", "sampling_locations", "attention_weights"))
        _validate.dtypes(self, ("spatial_shapes", "level_start_index"), _validate.INDICES)
        _validate.rank("value", self.value, "(B, S, H, D)")
        _validate.rank("sampling_locations", self.sampling_locations, "(B, Q, H, L, P, 2)")
        batch, _, heads, _ = self.value.shape
        _, queries, _, levels, points, _ = self.sampling_locations.shape
        _validate.shapes(
            self,
            ("value", "sampling_locations"),
            {
                "sampling_locations": (batch, queries, heads, levels, points, 2),
                "attention_weights": (batch, queries, heads, levels, points),
                "spatial_shapes": (levels, 2),
                "level_start_index": (levels,),
            },
        )
        _validate.devices(self)

    def result(self) -> Tensor:
        """(B, Q, H * D), with numbers yet to be written."""
        batch, _, heads, dim = self.value.shape
        return self.value.new_empty(batch, self.sampling_locations.shape[1], heads * dim)

    def trivial_result(self) -> Tensor | None:
        """Zeros where there is no sample."""
        if self.value.numel() and self.attention_weights.numel():
            return None
        return self.result().zero_()


def _flops(
    value: list[int], shapes: object, starts: object, locations: list[int], *_: object
) -> int:
    """A multiplication and an addition for each corner's channel."""
    batch, queries, heads, levels, points = locations[:5]
    return 8 * batch * queries * heads * levels * points * value[-1]


_operator = Operator(
    "ms_deform_attn",
    Inputs,
    gradients=("value", "sampling_locations", "attention_weights"),
    check_values=_validate.levels,
    limit=_validate.head_dim_limit,
    flops=_flops,
)


def ms_deform_attn(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    """Sample every level of `value` bilinearly and sum the samples by their attention weights.

    Args:
        value: (B, S, H, D), the levels one after the other in S. Fused kernels take a D that is a
            multiple of 4 up to 256; any other runs on PyTorch's own operators.
        spatial_shapes: (L, 2) integers, each level's (height, width).
        level_start_index: (L,) integers, each level's first row in S.
        sampling_locations: (B, Q, H, L, P, 2) as (x, y), 0 to 1 across the level.
        attention_weights: (B, Q, H, L, P).

    Floating-point inputs are float16, bfloat16, float32 or float64, each of its own dtype.

    Returns:
        (B, Q, H * D) in the dtype of `value`.

    Raises:
        ValueError: a shape, or a level that does not lie inside `value` (seen for CPU tensors only:
            reading it elsewhere would wait for the device).
        TypeError: a dtype, a layout, or what is no tensor.
        RuntimeError: tensors on several devices; a second or a forward-mode derivative.
    """
    out: Tensor = _operator(
        value, spatial_shapes, level_start_index, sampling_locations, attention_weights
    )
    return out


def ms_deform_attn_backward(
    grad_out: Tensor,
    *inputs: Tensor,
    wanted: Sequence[bool] = (True, True, True),
) -> tuple[Tensor | None, ...]:
    """The gradients of `ms_deform_attn` for value, locations and weights, given that of its result.

    Args:
        grad_out: (B, Q, H * D), any floating dtype.
        inputs: the five of `ms_deform_attn`.
        wanted: which of the gradients, in the order in which they are returned.

    Returns:
        One gradient each for value, sampling_locations and attention_weights, in their dtypes; None
        where not wanted.
    """
    return _operator.backward(grad_out, *inputs, wanted=wanted)
