"""Hands tensors over to the functions of the compiled library.

It has each for float32 and for float64: 16-bit inputs are widened, and the results narrowed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..dtypes import sum_dtype
from . import library

_SUFFIXES = {torch.float32: "f32", torch.float64: "f64"}


def forward(name: str, inputs: Any, sizes: Sequence[int]) -> Tensor:
    """Run an operator's `NAME_forward`, whose pointers are those of the inputs and the result."""
    dtype, tensors = _prepared(inputs)
    result: Tensor = inputs.result()
    sums = result if result.dtype == dtype else torch.empty_like(result, dtype=dtype)
    call(f"{name}_forward", dtype, [*tensors, sums], sizes)
    return result if sums is result else result.copy_(sums)


def backward(
    name: str,
    grad_out: Tensor,
    inputs: Any,
    differentiable: Sequence[Tensor],
    wanted: Sequence[bool],
    sizes: Sequence[int],
) -> tuple[Tensor | None, ...]:
    """Run an operator's `NAME_backward`, whose pointers are those of the gradient of the result,
    of the inputs, and of the gradients; these are null where they are not wanted."""
    dtype, tensors = _prepared(inputs)
    grads = [
        torch.empty(tensor.shape, dtype=dtype) if needed else None
        for tensor, needed in zip(differentiable, wanted, strict=True)
    ]
    tensors = [grad_out.to(dtype).contiguous(), *tensors, *grads]
    call(f"{name}_backward", dtype, tensors, sizes)
    return tuple(
        None if grad is None else grad.to(tensor.dtype)
        for grad, tensor in zip(grads, differentiable, strict=True)
    )


def _prepared(inputs: Any) -> tuple[torch.dtype, list[Tensor | None]]:
    """The dtype that sums are kept in, and the tensors as the library takes them: contiguous,
    of that dtype, of int64 or bool."""
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    dtype = sum_dtype(*tensors)

    def prepared(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            return tensor.to(dtype).contiguous()
        return (tensor if tensor.dtype == torch.bool else tensor.to(torch.int64)).contiguous()

    return dtype, [prepared(tensor) for tensor in tensors]


def call(
    name: str, dtype: torch.dtype, tensors: Sequence[Tensor | None], sizes: Sequence[int]
) -> None:
    """Call `name` for a dtype: contiguous tensors as pointers, then sizes and torch's threads."""
    function = _function(f"{name}_{_SUFFIXES[dtype]}", len(tensors), len(sizes) + 1)
    pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    function(*pointers, *sizes, torch.get_num_threads())


@cache
def _function(name: str, pointers: int, sizes: int) -> Callable[..., None]:
    loaded = library.library()
    if loaded is None:
        raise RuntimeError(f"no compiled CPU kernels: {library.why_not()}")
    function = loaded[name]
    function.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_int64] * sizes
    function.restype = None
    return function
