"""`ms_deform_attn` in C++, for CPU tensors: see ms_deform_attn.cpp."""

from __future__ import annotations

import torch
from torch import Tensor

from ._cpu_call import call
from ._dispatch import sum_dtype


def forward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    """See `ms_deform_attn`."""
    inputs = _Inputs(
        value, spatial_shapes, level_start_index, sampling_locations, attention_weights
    )
    batch, _, heads, dim = value.shape
    out = torch.empty(batch, sampling_locations.shape[1], heads * dim, dtype=inputs.dtype)
    call("ms_deform_attn_forward", inputs.dtype, [*inputs.tensors, out], inputs.sizes)
    return out.to(value.dtype)


def backward(
    grad_out: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `ms_deform_attn_backward`. Bitwise the same for any number of threads."""
    inputs = _Inputs(
        value, spatial_shapes, level_start_index, sampling_locations, attention_weights
    )
    widened, _, _, locations, weights = inputs.tensors
    grads = [torch.empty_like(t) for t in (widened, locations, weights)]
    grad_out = grad_out.to(inputs.dtype).contiguous()
    call(
        "ms_deform_attn_backward",
        inputs.dtype,
        [grad_out, *inputs.tensors, *grads],
        inputs.sizes,
    )
    return (
        grads[0].to(value.dtype),
        grads[1].to(sampling_locations.dtype),
        grads[2].to(attention_weights.dtype),
    )


class _Inputs:
    """The inputs as the library takes them: contiguous, of one floating dtype, int64."""

    def __init__(
        self,
        value: Tensor,
        spatial_shapes: Tensor,
        level_start_index: Tensor,
        sampling_locations: Tensor,
        attention_weights: Tensor,
    ) -> None:
        floats = (value, sampling_locations, attention_weights)
        self.dtype = sum_dtype(*floats)
        value, locations, weights = (t.to(self.dtype).contiguous() for t in floats)
        shapes, starts = (
            t.to(torch.int64).contiguous() for t in (spatial_shapes, level_start_index)
        )
        self.tensors = [value, shapes, starts, locations, weights]
        levels, points = locations.shape[3:5]
        self.sizes = [*value.shape, locations.shape[1], levels, points]
