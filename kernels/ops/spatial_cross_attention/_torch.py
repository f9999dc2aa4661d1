"""`spatial_cross_attention` in PyTorch's own operators, for any device and any head dimension.

One camera after the other through `ms_deform_attn`, over all queries: the samples of those that the
camera does not see are put out of the image, so no list has to be read from the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...common import softmax
from ...common.dtypes import sum_dtype
from .. import ms_deform_attn
from ..ms_deform_attn import _torch as one_camera
from . import Inputs


def forward(inputs: Inputs) -> Tensor:
    """See `spatial_cross_attention`."""
    work = _Work(inputs)
    sums = torch.zeros_like(inputs.result(), dtype=work.dtype)
    for camera in range(inputs.value.shape[1]):
        sums += one_camera.forward(work.camera(camera))
    return sums.to(inputs.value.dtype)


def backward(
    grad_out: Tensor, inputs: Inputs, wanted: Sequence[bool] = (True, True, True)
) -> tuple[Tensor | None, ...]:
    """The gradients of value, offsets and logits, None where not wanted. As deterministic as
    `Tensor.index_add_` is."""
    value, shapes, _, offsets, logits = inputs[:5]
    work = _Work(inputs)
    grad_value = value.new_empty(value.shape) if wanted[0] else None
    grad_locations = torch.zeros_like(offsets, dtype=work.dtype)
    grad_weights = torch.zeros_like(work.weights)
    for camera in range(value.shape[1]):
        of_value, of_locations, of_weights = one_camera.backward(
            grad_out, work.camera(camera), wanted
        )
        if grad_value is not None and of_value is not None:
            grad_value[:, camera] = of_value
        if of_locations is not None:
            grad_locations += of_locations
        if of_weights is not None:
            grad_weights += of_weights
    grad_offsets = (grad_locations / shapes.flip(-1)[:, None]).to(offsets.dtype)
    grad_logits = softmax.backward(grad_weights * work.seen.share, work.weights)
    return grad_value, grad_offsets, grad_logits.view_as(logits).to(logits.dtype)


class _Seen(NamedTuple):
    share: Tensor  # (B, Q, 1, 1, 1): one over the number of cameras that see the query
    cameras: Tensor  # (N, B, Q) bool: whether to sum over the camera


class _Work:
    """The inputs as `ms_deform_attn` takes them, camera by camera, in the dtype of sums."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self.dtype = sum_dtype(*inputs[:-1])
        self.weights = softmax.weights(inputs.offsets, inputs.logits, self.dtype)
        cameras = inputs.visibility.ne(0).any(-1)
        share = 1 / cameras.sum(0).clamp(min=1).to(self.dtype)
        if inputs.first_item_visibility:
            cameras = cameras[:, :1].expand_as(cameras)
        self.seen = _Seen(share[..., None, None, None], cameras)

    def camera(self, camera: int) -> ms_deform_attn.Inputs:
        """The samples of one camera, infinitely far for the queries that it does not see."""
        value, shapes, starts, offsets, _, references = self._inputs[:6]
        height = torch.arange(offsets.shape[4], device=offsets.device) % references.shape[3]
        around = references[camera].to(self.dtype)[:, :, height][:, :, None, None]
        locations = around + offsets.to(self.dtype) / shapes.flip(-1)[:, None]
        unseen = ~self.seen.cameras[camera][..., None, None, None, None]
        return ms_deform_attn.Inputs(
            value[:, camera].to(self.dtype),
            shapes,
            starts,
            locations.masked_fill(unseen, torch.inf),
            self.weights * self.seen.share,
        )
