"""`ms_deform_attn` in C++, for CPU tensors: hands the pointers over to ms_deform_attn.cpp.

float32 and float64 run as they are; 16-bit inputs are widened to float32 and the results narrowed.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .. import _cpu_library

if TYPE_CHECKING:
    from collections.abc import Callable

_SUFFIXES = {torch.float32: "f32", torch.float64: "f64"}


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
    _call("ms_deform_attn_forward", inputs.dtype, [*inputs.tensors, out], inputs.sizes)
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
    _call(
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
        wide = any(tensor.dtype == torch.float64 for tensor in floats)
        self.dtype = torch.float64 if wide else torch.float32
        value, locations, weights = (t.to(self.dtype).contiguous() for t in floats)
        shapes, starts = (
            t.to(torch.int64).contiguous() for t in (spatial_shapes, level_start_index)
        )
        self.tensors = [value, shapes, starts, locations, weights]
        levels, points = locations.shape[3:5]
        self.sizes = [*value.shape, locations.shape[1], levels, points]


def _call(name: str, dtype: torch.dtype, tensors: list[Tensor], sizes: list[int]) -> None:
    function = _function(f"{name}_{_SUFFIXES[dtype]}", len(tensors), len(sizes) + 1)
    function(*[tensor.data_ptr() for tensor in tensors], *sizes, torch.get_num_threads())


@cache
def _function(name: str, pointers: int, sizes: int) -> Callable[..., None]:
    library = _cpu_library.library()
    if library is None:
        raise RuntimeError(f"no compiled CPU kernels: {_cpu_library.why_not()}")
    function = library[name]
    function.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_int64] * sizes
    function.restype = None
    return function
