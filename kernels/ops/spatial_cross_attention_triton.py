"""`spatial_cross_attention` in Triton, for CUDA devices.

Nothing is read on the host. The kernels are in `_triton_spatial_cross_attention`.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
from torch import Tensor

from . import _triton_launch as launch
from . import _triton_sums as pixel_sums
from ._triton_attention import attention_steps, softmax_chunk, weight_gradients
from ._triton_launch import Size
from ._triton_spatial_cross_attention import backward_kernel, forward_kernel
from ._triton_visibility import camera_groups

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "spatial_cross_attention"


def forward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points_cam: Tensor,
    visibility: Tensor,
    first_item_visibility: bool,
) -> Tensor:
    """See `spatial_cross_attention`; the floating-point dtypes are `_triton_launch.DTYPES`."""
    inputs = _Inputs(
        value,
        spatial_shapes,
        level_start_index,
        offsets,
        logits,
        reference_points_cam,
        visibility,
    )
    return _forward(inputs, first_item_visibility, None)


def backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points_cam: Tensor,
    visibility: Tensor,
    first_item_visibility: bool,
    *,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `spatial_cross_attention_backward`.

    Args:
        deterministic: give the same bits at every call. The gradient of `value` is summed in an
            order that changes from call to call; in 64-bit integers, at twice the memory, order
            does not matter. A step is the largest gradient times Q * L * P / 2**60 or less. The
            other gradients have one order always.
    """
    inputs = _Inputs(
        value,
        spatial_shapes,
        level_start_index,
        offsets,
        logits,
        reference_points_cam,
        visibility,
    )
    return _backward(grad_out, inputs, first_item_visibility, deterministic, None)


def tune(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    offsets: Tensor,
    logits: Tensor,
    reference_points_cam: Tensor,
    visibility: Tensor,
    path: Path | None = None,
) -> dict[str, dict[Size, float]]:
    """Measure program sizes on these inputs' GPU and save the fastest for later processes.

    Args:
        path: the file to update; by default the one that is read (see `_triton_launch`).

    Returns:
        Milliseconds by size, for "forward" and for "backward".

    Raises:
        RuntimeError: the inputs are not on a CUDA device.
    """
    inputs = _Inputs(
        value,
        spatial_shapes,
        level_start_index,
        offsets,
        logits,
        reference_points_cam,
        visibility,
    )
    grad_out = value.new_ones(offsets.shape[0], offsets.shape[1], value.shape[3] * value.shape[4])
    runs: dict[str, Callable[[Size], object]] = {
        "forward": lambda size: _forward(inputs, False, size),
        "backward": lambda size: _backward(grad_out, inputs, False, False, size),
    }
    return launch.tune_operator(NAME, value, runs, path)


def size_for(kernel: str, value: Tensor) -> Size:
    """The size that "forward" or "backward" runs with: a measured one, else the built-in one."""
    return launch.size_for(NAME, kernel, value)


class _Inputs(NamedTuple):
    value: Tensor
    spatial_shapes: Tensor
    level_start_index: Tensor
    offsets: Tensor
    logits: Tensor
    reference_points_cam: Tensor
    visibility: Tensor

    def prepared(self) -> _Inputs:
        """As the kernels address them: contiguous, pairs aligned, no booleans."""
        visibility = self.visibility.contiguous()
        return _Inputs(
            self.value.contiguous(),
            self.spatial_shapes.contiguous(),
            self.level_start_index.contiguous(),
            launch.aligned_pairs(self.offsets),
            self.logits.contiguous(),
            launch.aligned_pairs(self.reference_points_cam),
            visibility.view(torch.uint8) if visibility.dtype == torch.bool else visibility,
        )

    def sizes(self) -> tuple[int, ...]:
        """What the kernels take as arguments, from `cameras` to `heights`."""
        _, cameras, keys, _, _ = self.value.shape
        batch, queries, _, levels, points, _ = self.offsets.shape
        return cameras, batch, keys, queries, levels, points, self.visibility.shape[3]

    def constants(self, size: Size, first_item_visibility: bool) -> dict[str, int | bool]:
        """What the kernels are compiled for."""
        groups, cameras = camera_groups(self.value.shape[1])
        return {
            "FIRST_ITEM": first_item_visibility,
            "GROUPS": groups,
            "CAMERAS": cameras,
            "CHUNK": softmax_chunk(self.logits.shape[3], size),
            "HEADS": self.value.shape[3],
        }


def _forward(inputs: _Inputs, first_item_visibility: bool, size: Size | None) -> Tensor:
    value, _, _, offsets, logits, references, _ = inputs
    launch.check_dtypes(value, offsets, logits, references)
    batch, queries, heads = offsets.shape[:3]
    shape = (batch, queries, heads * value.shape[4])
    out = torch.empty(shape, dtype=value.dtype, device=value.device)
    if out.numel() == 0:
        return out
    size = size or size_for("forward", value)
    with launch.device_of(value):
        forward_kernel[(batch * heads * triton.cdiv(queries, size.rows),)](
            out,
            *inputs.prepared(),
            *inputs.sizes(),
            **inputs.constants(size, first_item_visibility),
            **size.tile("forward", value),
            **size.options(),
        )
    return out


def _backward(
    grad_out: Tensor,
    inputs: _Inputs,
    first_item_visibility: bool,
    deterministic: bool,
    size: Size | None,
) -> tuple[Tensor, Tensor, Tensor]:
    value, _, _, offsets, logits, references, _ = inputs
    launch.check_dtypes(grad_out, value, offsets, logits, references)
    batch, queries, heads = offsets.shape[:3]
    size = size or size_for("backward", value)
    steps = None
    if deterministic and grad_out.numel() and logits.numel():
        steps = attention_steps(grad_out, logits)
        size = launch.deterministic_size(size)
    constants = inputs.constants(size, first_item_visibility)
    if constants["GROUPS"] > 1:
        # Groups of cameras add up in the gradients' memory: 16 bits would round after each group.
        inputs = inputs._replace(offsets=offsets.float(), logits=logits.float())
    prepared = inputs.prepared()
    sums = pixel_sums.zeros(value, deterministic)
    grad_offsets = torch.empty_like(prepared.offsets)
    grad_logits = torch.empty_like(prepared.logits)
    if grad_out.numel() and logits.numel():
        with launch.device_of(value):
            backward_kernel[(batch * heads * triton.cdiv(queries, size.rows),)](
                sums,
                grad_offsets,
                grad_logits,
                weight_gradients(grad_logits),
                grad_out.contiguous(),
                steps,
                *prepared,
                *inputs.sizes(),
                **constants,
                **size.tile("backward", value),
                **size.options(),
            )
    grad_value = pixel_sums.gradient(sums, steps, value.dtype)
    return grad_value, grad_offsets.to(offsets.dtype), grad_logits.to(logits.dtype)
