"""`modulated_deform_conv2d` for CPU tensors: columns in C++, products in torch's libraries.

The columns and their gradients are bitwise the same for any number of threads; what the products
are is up to the library. 16-bit inputs are widened to float32 and the results narrowed.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...common.cpu import matrix_product
from ...common.cpu.call import call
from . import Inputs, _columns
from ._geometry import Geometry

# Channels in a task of the backward pass: enough tasks for many cores, and fewer than 1024.
_BLOCK = 32


def forward(inputs: Inputs) -> Tensor:
    """See `modulated_deform_conv2d`."""
    return _columns.forward(_Samples, inputs)


def backward(
    grad_out: Tensor, inputs: Inputs, wanted: Sequence[bool] = (True, True, True, True)
) -> _columns.Gradients:
    """The gradients of input, offset, mask and weight, None where not wanted."""
    return _columns.backward(_Samples, grad_out, inputs, wanted)


class _Samples:
    """See `_columns.Samples`; the pointers go to _cpu.cpp."""

    def __init__(
        self, image: Tensor, offset: Tensor, mask: Tensor | None, geometry: Geometry
    ) -> None:
        height, width, channels = image.shape
        self._inputs = [image, offset, mask]
        self._sizes = [channels, height, width, geometry.out_size[1], offset.shape[3]]
        self._sizes += [*geometry.kernel, *geometry.stride, *geometry.padding, *geometry.dilation]
        self._sizes += [geometry.groups, geometry.deform_groups, _BLOCK]

    def columns(self, first: int, out: Tensor) -> None:
        self._call("columns", [out], first, out.shape[1])

    def backward(self, first: int, inout: Tensor, grad_image: Tensor | None) -> Tensor:
        channels, deform_groups = self._sizes[0], self._sizes[-2]
        blocks = -(-(channels // deform_groups) // _BLOCK)
        taps = self._inputs[1].shape[1] if self._inputs[1] is not None else 0
        shares = inout.new_empty(blocks, deform_groups, taps, 3, inout.shape[1])
        self._call("columns_backward", [inout, grad_image, shares], first, inout.shape[1])
        return shares.sum(0)

    @staticmethod
    def multiply(a: Tensor, b: Tensor, out: Tensor, add: bool) -> None:
        matrix_product.multiply(a, b, out, add)

    def _call(self, name: str, tensors: list[Tensor | None], first: int, pixels: int) -> None:
        image = self._inputs[0]
        assert image is not None
        call(
            f"modulated_deform_conv2d_{name}",
            image.dtype,
            [*self._inputs, *tensors],
            [*self._sizes, first, pixels],
        )
