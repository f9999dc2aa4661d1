"""modulated_deform_conv2d as a product of weights and sampled columns, some pixels at a time.

The columns of a whole image are 9 times its size for a 3 x 3 kernel. Here they are made, used and
overwritten for some of the pixels at a time. Both sides of every product lie as the channels
of the image do, last; the result goes straight into its place in either memory format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from ._deform_conv_geometry import Geometry, Gradients, Pair, empty_out
from ._dispatch import sum_dtype

# Of columns held at once: they stay in the last cache, and weights of many channels, which every
# product reads whole, meet enough pixels; with torch's products a quarter of it took up to twice
# the time. A GPU wants few launches.
_BYTES_CPU = 8 << 20
_BYTES = 256 << 20


class Samples(Protocol):
    """One image's samples. All tensors are contiguous and of one dtype."""

    def __init__(
        self,
        image: Tensor,
        offset: Tensor,
        mask: Tensor | None,
        kernel: Pair,
        out_width: int,
        geometry: Geometry,
    ) -> None:
        """(H, W, C), (deform groups, taps, 2, pixels), (deform groups, taps, pixels) or None."""

    def columns(self, first: int, out: Tensor) -> None:
        """Fill `out` (groups, pixels, taps, C / groups), for the output pixels from `first` on."""

    def backward(self, first: int, inout: Tensor, grad_image: Tensor) -> Tensor:
        """Replace the columns' gradients by the columns, and add to grad_image (H, W, C).

        Returns:
            (deform groups, taps, 3, pixels), the gradients of y, x and mask.
        """

    @staticmethod
    def multiply(a: Tensor, b: Tensor, out: Tensor, add: bool) -> None:
        """A product of matrices into `out`, or added to what is there (see `_matrix_product`)."""


def forward(
    samples: type[Samples],
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
) -> Tensor:
    """See `modulated_deform_conv2d`."""
    work = _Work(samples, input, offset, mask, weight, geometry)
    out = empty_out(input, weight, geometry)
    targets = work.by_group(out)
    weights = work.weights.permute(0, 3, 2, 1).flatten(1, 2).contiguous()
    biases = None
    if bias is not None:
        biases = bias.to(work.dtype).view(geometry.groups, -1)
    for item, target in enumerate(targets):
        sampled = work.samples(item)
        for first, columns in work.chunks():
            sampled.columns(first, columns)
            for group, column in enumerate(columns.flatten(2)):
                part = target[group, :, first : first + columns.shape[1]].t()
                into = part if part.dtype == work.dtype else part.to(work.dtype)
                if biases is not None:
                    into.copy_(biases[group])
                samples.multiply(column, weights[group], into, add=biases is not None)
                if into is not part:
                    part.copy_(into)
    return out


def backward(
    samples: type[Samples],
    grad_out: Tensor,
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    geometry: Geometry,
) -> Gradients:
    """See `modulated_deform_conv2d_backward`."""
    work = _Work(samples, input, offset, mask, weight, geometry)
    grads_out = work.by_group(grad_out)
    weights = work.weights.transpose(2, 3).flatten(2)
    grad_input, grad_weight = torch.empty_like(input), torch.empty_like(weight)
    grad_weights = torch.zeros_like(weights)
    # Per image, deform group and tap: the gradients of y, x and mask, in the sums' dtype.
    shares = torch.empty(
        *work.offset.shape[:3], 3, work.offset.shape[4], dtype=work.dtype, device=input.device
    )
    for item, grads in enumerate(grads_out):
        sampled = work.samples(item)
        grad_image = _image_to_add_to(grad_input[item], work.dtype)
        for first, columns in work.chunks():
            part = slice(first, first + columns.shape[1])
            grad = grads[..., part].to(work.dtype)
            flat = columns.flatten(2)
            for group, column in enumerate(flat):
                samples.multiply(grad[group].t(), weights[group], column, add=False)
            shares[item, ..., part] = sampled.backward(first, columns, grad_image)
            for group, into in enumerate(grad_weights):
                samples.multiply(grad[group], flat[group], into, add=True)
        if grad_image.data_ptr() != grad_input[item].data_ptr():
            grad_input[item].copy_(grad_image.permute(2, 0, 1))
    grad_weight.copy_(grad_weights.view(weight.shape[0], *weight.shape[2:], -1).permute(0, 3, 1, 2))
    grad_offset = torch.empty_like(offset).copy_(shares[..., :2, :].reshape(offset.shape))
    if mask is None:
        return grad_input, grad_offset, None, grad_weight
    grad_mask = torch.empty_like(mask).copy_(shares[..., 2, :].reshape(mask.shape))
    return grad_input, grad_offset, grad_mask, grad_weight


class _Work:
    """The inputs as the products take them, and the memory for the columns."""

    def __init__(
        self,
        samples: type[Samples],
        input: Tensor,
        offset: Tensor,
        mask: Tensor | None,
        weight: Tensor,
        geometry: Geometry,
    ) -> None:
        self.dtype = sum_dtype(input, offset, weight, *(() if mask is None else (mask,)))
        self.geometry = geometry
        self._samples = samples
        self._input = input
        self._kernel = (weight.shape[2], weight.shape[3])
        taps = weight.shape[2] * weight.shape[3]
        height, width = geometry.out_size(input, weight)
        self._out_width = width
        self._plane = height * width
        self._shape = (geometry.groups, taps, weight.shape[1])
        batch, deform_groups = input.shape[0], geometry.deform_groups
        # (N, deform groups, taps, 2, pixels), (N, deform groups, taps, pixels)
        self.offset = (
            offset.to(self.dtype).contiguous().view(batch, deform_groups, taps, 2, self._plane)
        )
        self.mask = mask
        if mask is not None:
            self.mask = mask.to(self.dtype).contiguous().view(batch, deform_groups, taps, -1)
        # (groups, out channels / groups, C / groups, taps)
        self.weights = weight.to(self.dtype).reshape(
            geometry.groups, weight.shape[0] // geometry.groups, weight.shape[1], taps
        )

        held = _BYTES_CPU if input.device.type == "cpu" else _BYTES
        pixel = taps * input.shape[1]
        most = max(1, held // (pixel * self.weights.element_size()))
        chunks = -(-self._plane // most)
        self._pixels = -(-self._plane // chunks)
        self._memory = torch.empty(self._pixels * pixel, dtype=self.dtype, device=input.device)

    def by_group(self, out: Tensor) -> Tensor:
        """(N, C, H, W) as (N, groups, C / groups, pixels), the same memory."""
        return out.flatten(2).view(out.shape[0], self.geometry.groups, -1, self._plane)

    def samples(self, item: int) -> Samples:
        """The samples of one image of the batch."""
        return self._samples(
            self._input[item].permute(1, 2, 0).to(self.dtype).contiguous(),
            self.offset[item],
            None if self.mask is None else self.mask[item],
            self._kernel,
            self._out_width,
            self.geometry,
        )

    def chunks(self) -> Iterator[tuple[int, Tensor]]:
        """First pixel, and room for the columns: (groups, pixels, taps, C / groups)."""
        groups, taps, channels = self._shape
        for first in range(0, self._plane, self._pixels):
            pixels = min(self._pixels, self._plane - first)
            room = self._memory[: groups * pixels * taps * channels]
            yield first, room.view(groups, pixels, taps, channels)


def _image_to_add_to(grad: Tensor, dtype: torch.dtype) -> Tensor:
    """(C, H, W) as (H, W, C) of zeros: the same memory where it lies so, else memory of its own."""
    last = grad.permute(1, 2, 0)
    if last.is_contiguous() and last.dtype == dtype:
        return last.zero_()
    return torch.zeros(last.shape, dtype=dtype, device=grad.device)
