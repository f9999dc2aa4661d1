"""Hands tensors over to the functions of the compiled library.

It has each for float32 and for float64: 16-bit inputs are widened, and the results narrowed.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

import torch

from .. import _cpu_library
from ._dispatch import sum_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

_SUFFIXES = {torch.float32: "f32", torch.float64: "f64"}


def prepared(
    floats: Sequence[Tensor], levels: Sequence[Tensor]
) -> tuple[torch.dtype, list[Tensor]]:
    """An operator's inputs as the library takes them, and the dtype that it sums in.

    Args:
        floats: the value first.
        levels: spatial_shapes and level_start_index.

    Returns:
        The dtype, and value, levels and the other floats: contiguous, of that dtype and int64.
    """
    dtype = sum_dtype(*floats)
    value, *others = (t.to(dtype).contiguous() for t in floats)
    return dtype, [value, *(t.to(torch.int64).contiguous() for t in levels), *others]


def call(name: str, dtype: torch.dtype, tensors: Sequence[Tensor], sizes: Sequence[int]) -> None:
    """Call `name` for a dtype: contiguous tensors as pointers, then sizes and torch's threads."""
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
