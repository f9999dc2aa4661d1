"""Temporal self-attention: bird's-eye-view queries look into a queue of such maps.

Source: Li et al., "BEVFormer", ECCV 2022, equation 5, with the deformable attention of Zhu et al.,
"Deformable DETR", ICLR 2021. For batch item b, query q, head h

    out[b, q, h, :] = 1 / T * sum over the T entries t of the queue, levels l and points p of
        softmax(logits[b, q, h, t])[l, p] *
        bilinear(value[b * T + t, level l, h, :], location[t, l, p])
    location[t, l, p] =
        reference_points[b * T + t, q, l] + offsets[b, q, h, t, l, p] / (width, height)

Pixels, borders, sums, dtypes and autocast are as in `ms_deform_attn`.

Offsets and logits are laid out as the linear layers of the official BEVFormer give them, so nothing
is permuted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ... import _validate
from ..._operator import Derived, Operator


class Inputs(NamedTuple):
    """See `temporal_self_attention`."""

    value: Tensor
    spatial_shapes: Tensor
    level_start_index: Tensor
    offsets: Tensor
    logits: Tensor
    reference_points: Tensor

    def check(self) -> None:
        """Raise what `temporal_self_attention` says, of what shapes, dtypes and devices tell."""
        _validate.dtypes(self, ("value", "offsets", "logits", "reference_points"))
        _validate.dtypes(self, ("spatial_shapes", "level_start_index"), _validate.INDICES)
        _validate.rank("value", self.value, "(B * T, S, H, D)")
        _validate.rank("offsets", self.offsets, "(B, Q, H, T, L, P, 2)")
        rows, _, heads, _ = self.value.shape
        batch, queries, _, entries, levels, points, _ = self.offsets.shape
        if rows != batch * entries:
            raise ValueError(
                f"value must have {batch} * {entries} maps to go with offsets "
                f"{tuple(self.offsets.shape)}, not {rows}"
            )
        _validate.shapes(
            self,
            ("value", "offsets"),
            {
                "offsets": (batch, queries, heads, entries, levels, points, 2),
                "logits": (batch, queries, heads, entries, levels * points),
                "reference_points": (rows, queries, levels, 2),
                "spatial_shapes": (levels, 2),
                "level_start_index": (levels,),
            },
        )
        _validate.devices(self)

    def result(self) -> Tensor:
        """(B, Q, H * D), with numbers yet to be written."""
        _, _, heads, dim = self.value.shape
        return self.value.new_empty(*self.offsets.shape[:2], heads * dim)

    def trivial_result(self) -> Tensor | None:
        """Zeros where there is no sample."""
        if self.value.numel() and self.logits.numel():
            return None
        return self.result().zero_()


def _of_reference_points(grad_out: Tensor, inputs: Inputs, grads: dict[str, Tensor]) -> Tensor:
    """A reference point moves all heads and points, and by a level's size where they move by one
    pixel: (B, Q, H, T, L, P, 2) -> (B * T, Q, L, 2)."""
    offsets = grads["offsets"]
    wide = torch.promote_types(offsets.dtype, torch.float32)
    summed = offsets.sum((2, 5), dtype=wide).transpose(1, 2).flatten(0, 1)
    return (summed * inputs.spatial_shapes.flip(-1)).to(inputs.reference_points.dtype)


def _flops(value: list[int], shapes: object, starts: object, offsets: list[int], *_: object) -> int:
    """As `ms_deform_attn`."""
    batch, queries, heads, entries, levels, points = offsets[:6]
    return 8 * batch * queries * heads * entries * levels * points * value[-1]


_operator = Operator(
    "temporal_self_attention",
    Inputs,
    gradients=("value", "offsets", "logits"),
    derived={"reference_points": Derived(("offsets",), _of_reference_points)},
    check_values=_validate.levels,
    limit=_validate.head_dim_limit,
    flops=_flops,
)


def temporal_self_attention(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points: Tensor,
) -> Tensor:
    """Sample every entry of the queue around a query's reference points, and average over them.

    Args:
        value: (B * T, S, H, D), the T entries of an item's queue one after the other, the levels
            one after the other in S; any D (see `ms_deform_attn`).
        spatial_shapes: (L, 2) integers, each level's (height, width).
        level_start_index: (L,) integers, each level's first row in S.
        offsets: (B, Q, H, T, L, P, 2) as (x, y) in pixels of their level.
        logits: (B, Q, H, T, L * P), before the softmax of each entry.
        reference_points: (B * T, Q, L, 2) as (x, y), 0 to 1 across the level.

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
        value, spatial_shapes, level_start_index, offsets, logits, reference_points
    )
    return out


def temporal_self_attention_backward(
    grad_out: Tensor,
    *inputs: Tensor,
    wanted: Sequence[bool] = (True, True, True),
) -> tuple[Tensor | None, ...]:
    """The gradients of `temporal_self_attention`, given that of its result.

    Args:
        grad_out: (B, Q, H * D), any floating dtype.
        inputs: the six of `temporal_self_attention`.
        wanted: which of the gradients, in the order in which they are returned.

    Returns:
        One gradient each for value, offsets and logits, in their dtypes; None where not
        wanted.
    """
    return _operator.backward(grad_out, *inputs, wanted=wanted)
