"""`modulated_deform_conv2d` for CPU tensors: columns in C++, products in torch.

The columns and their gradients are bitwise the same for any number of threads; the products are as
far as `torch.mm` is. 16-bit inputs are widened to float32 and the results narrowed.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .. import _cpu_library
from . import _deform_conv_columns as product
from ._deform_conv_geometry import Geometry, Gradients, Pair

if TYPE_CHECKING:
    from collections.abc import Callable

_SUFFIXES = {torch.float32: "f32", torch.float64: "f64"}


def forward(
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
) -> Tensor:
    """See `modulated_deform_conv2d`."""
    return product.forward(_Samples, input, offset, mask, weight, bias, geometry)


def backward(
    grad_out: Tensor,
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    geometry: Geometry,
) -> Gradients:
    """See `modulated_deform_conv2d_backward`."""
    return product.backward(_Samples, grad_out, input, offset, mask, weight, geometry)


class _Samples:
    """See `_deform_conv_columns.Samples`; the pointers go to modulated_deform_conv2d.cpp."""

    def __init__(
        self,
        image: Tensor,
        offset: Tensor,
        mask: Tensor | None,
        kernel: Pair,
        out_width: int,
        geometry: Geometry,
    ) -> None:
        height, width, channels = image.shape
        self._inputs = (image, offset, mask)  # kept alive beside their pointers
        self._pointers = [
            image.data_ptr(),
            offset.data_ptr(),
            None if mask is None else mask.data_ptr(),
        ]
        self._sizes = [channels, height, width, out_width, offset.shape[3], *kernel]
        self._sizes += [*geometry.stride, *geometry.padding, *geometry.dilation]
        self._sizes += [geometry.groups, geometry.deform_groups]

    def columns(self, first: int, out: Tensor) -> None:
        self._call("columns", [out], first, out.shape[1])

    def backward(self, first: int, inout: Tensor, grad_image: Tensor) -> Tensor:
        image, offset, _ = self._inputs
        deform_groups, taps = offset.shape[:2]
        block = _function("modulated_deform_conv2d_block", 0, 0, ctypes.c_int64)()
        blocks = -(-image.shape[2] // deform_groups // block)
        shares = inout.new_empty(blocks, deform_groups, taps, 3, inout.shape[1])
        self._call("columns_backward", [inout, grad_image, shares], first, inout.shape[1])
        return shares.sum(0)

    def _call(self, name: str, tensors: list[Tensor], first: int, pixels: int) -> None:
        pointers = [*self._pointers, *(tensor.data_ptr() for tensor in tensors)]
        sizes = [*self._sizes, first, pixels, torch.get_num_threads()]
        suffix = _SUFFIXES[self._inputs[0].dtype]
        name = f"modulated_deform_conv2d_{name}_{suffix}"
        _function(name, len(pointers), len(sizes))(*pointers, *sizes)


@cache
def _function(
    name: str, pointers: int, sizes: int, result: type | None = None
) -> Callable[..., int]:
    library = _cpu_library.library()
    if library is None:
        raise RuntimeError(f"no compiled CPU kernels: {_cpu_library.why_not()}")
    function = library[name]
    function.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_int64] * sizes
    function.restype = result
    return function
