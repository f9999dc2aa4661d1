"""`spatial_cross_attention` in Triton. Nothing is read on the host. See `_triton_kernels`."""

from __future__ import annotations

import torch
from torch import Tensor

from ...common.triton import launch
from ...common.triton.attention import softmax_chunk
from ...common.triton.launch import Size
from ...common.triton.operator import AttentionKernels
from . import Inputs
from ._triton_kernels import backward_kernel, forward_kernel
from ._triton_visibility import camera_groups


def _prepare(inputs: Inputs) -> list[Tensor]:
    """Contiguous, pairs aligned, no booleans."""
    value, shapes, starts, offsets, logits, references, visibility, _ = inputs
    groups, _ = camera_groups(value.shape[1])
    if groups > 1:
        # Groups of cameras add up in the gradients' memory: 16 bits would round after each group.
        offsets, logits = offsets.float(), logits.float()
    visibility = visibility.contiguous()
    return [
        value.contiguous(),
        shapes.contiguous(),
        starts.contiguous(),
        launch.aligned_pairs(offsets),
        logits.contiguous(),
        launch.aligned_pairs(references),
        visibility.view(torch.uint8) if visibility.dtype == torch.bool else visibility,
    ]


def _sizes(inputs: Inputs) -> tuple[int, ...]:
    _, cameras, keys, _, _ = inputs.value.shape
    batch, queries, _, levels, points, _ = inputs.offsets.shape
    return cameras, batch, keys, queries, levels, points, inputs.visibility.shape[3]


def _constants(inputs: Inputs, size: Size) -> dict[str, int | bool]:
    groups, cameras = camera_groups(inputs.value.shape[1])
    return {
        "FIRST_ITEM": inputs.first_item_visibility,
        "GROUPS": groups,
        "CAMERAS": cameras,
        "CHUNK": softmax_chunk(inputs.logits.shape[3], size),
        "HEADS": inputs.value.shape[3],
    }


KERNELS = AttentionKernels(
    "spatial_cross_attention", forward_kernel, backward_kernel, _prepare, _sizes, _constants
)
forward, backward = KERNELS.forward, KERNELS.backward
