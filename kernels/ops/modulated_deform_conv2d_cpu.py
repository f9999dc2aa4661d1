"""`modulated_deform_conv2d` for CPU tensors: columns in C++, products in torch's libraries.

The columns and their gradients are bitwise the same for any number of threads; what the products
are is up to the library. 16-bit inputs are widened to float32 and the results narrowed.
"""

from __future__ import annotations

from torch import Tensor

from . import _deform_conv_columns as product
from . import _matrix_product
from ._cpu_call import call
from ._deform_conv_geometry import Geometry, Gradients, Pair

# Channels in a task of the backward pass: enough tasks for many cores, and fewer than 1024.
_BLOCK = 32


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
        # An empty tensor's pointer is null.
        self._inputs = [image, offset, image.new_empty(0) if mask is None else mask]
        self._sizes = [channels, height, width, out_width, offset.shape[3], *kernel]
        self._sizes += [*geometry.stride, *geometry.padding, *geometry.dilation]
        self._sizes += [geometry.groups, geometry.deform_groups, _BLOCK]

    def columns(self, first: int, out: Tensor) -> None:
        self._call("columns", [out], first, out.shape[1])

    def backward(self, first: int, inout: Tensor, grad_image: Tensor) -> Tensor:
        image, offset, _ = self._inputs
        deform_groups, taps = offset.shape[:2]
        blocks = -(-(image.shape[2] // deform_groups) // _BLOCK)
        shares = inout.new_empty(blocks, deform_groups, taps, 3, inout.shape[1])
        self._call("columns_backward", [inout, grad_image, shares], first, inout.shape[1])
        return shares.sum(0)

    @staticmethod
    def multiply(a: Tensor, b: Tensor, out: Tensor, add: bool) -> None:
        _matrix_product.multiply(a, b, out, add)

    def _call(self, name: str, tensors: list[Tensor], first: int, pixels: int) -> None:
        call(
            f"modulated_deform_conv2d_{name}",
            self._inputs[0].dtype,
            [*self._inputs, *tensors],
            [*self._sizes, first, pixels],
        )
