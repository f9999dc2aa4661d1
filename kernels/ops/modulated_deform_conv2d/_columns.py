"""modulated_deform_conv2d as a product of weights and sampled columns, some pixels at a time.

The columns of a whole image are 9 times its size for a 3 x 3 kernel. Here they are made, used and
overwritten for some of the pixels at a time. Both sides of every product lie as the channels
of the image do, last; the result goes straight into its place in either memory format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ...common.dtypes import sum_dtype
from . import Inputs
from ._geometry import Geometry

Gradients = tuple[Tensor | None, ...]
"""Of input, offset, mask and weight."""

# Of columns held at once: they stay in the last cache, and weights of many channels, which every
# product reads whole, meet enough pixels; with torch's products a quarter of it took up to twice
# the time. A GPU wants few launches.
_BYTES_CPU = 8 << 20
_BYTES = 256 << 20


class Samples(Protocol):
    """One image's samples. All tensors are contiguous and of one dtype."""

    def __init__(
        self, image: Tensor, offset: Tensor, mask: Tensor | None, geometry: Geometry
    ) -> None:
        """(H, W, C), (deform groups, taps, 2, pixels), (deform groups, taps, pixels) or None."""

    def columns(self, first: int, out: Tensor) -> None:
        """Fill `out` (groups, pixels, taps, C / groups), for the output pixels from `first` on."""

    def backward(self, first: int, inout: Tensor, grad_image: Tensor | None) -> Tensor:
        """Replace the columns' gradients by the columns, and add to grad_image (H, W, C).

        Returns:
            (deform groups, taps, 3, pixels), the gradients of y, x and mask.
        """

    @staticmethod
    def multiply(a: Tensor, b: Tensor, out: Tensor, add: bool) -> None:
        """A product of matrices into `out`, or added to what is there (see `matrix_product`)."""


def forward(samples: type[Samples], inputs: Inputs) -> Tensor:
    """See `modulated_deform_conv2d`."""
    work = _Work(samples, inputs)
    out = inputs.result()
    weights = work.weights.permute(0, 3, 2, 1).flatten(1, 2).contiguous()
    biases = None
    if inputs.bias is not None:
        biases = inputs.bias.to(work.dtype).view(inputs.groups, -1)
    for item, target in enumerate(work.by_group(out)):
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
    samples: type[Samples], grad_out: Tensor, inputs: Inputs, wanted: Sequence[bool]
) -> Gradients:
    """See `modulated_deform_conv2d_backward`."""
    of_input, of_offset, of_mask, of_weight = wanted
    work = _Work(samples, inputs)
    if not (of_input or of_offset or of_mask):
        return None, None, None, _weight_gradient(samples, grad_out, inputs, work)
    weights = work.weights.transpose(2, 3).flatten(2)
    grad_input = torch.empty_like(inputs.input) if of_input else None
    grad_weights = torch.zeros_like(weights) if of_weight else None
    # Per image, deform group and tap: the gradients of y, x and mask, in the sums' dtype.
    shares = work.offset.new_empty(*work.offset.shape[:3], 3, work.offset.shape[4])
    for item, grads in enumerate(work.by_group(grad_out)):
        sampled = work.samples(item)
        grad_image = None if grad_input is None else _to_add_to(grad_input[item], work.dtype)
        for first, columns in work.chunks():
            part = slice(first, first + columns.shape[1])
            grad = grads[..., part].to(work.dtype)
            flat = columns.flatten(2)
            for group, column in enumerate(flat):
                samples.multiply(grad[group].t(), weights[group], column, add=False)
            shares[item, ..., part] = sampled.backward(first, columns, grad_image)
            if grad_weights is not None:
                for group, into in enumerate(grad_weights):
                    samples.multiply(grad[group], flat[group], into, add=True)
        if (
            grad_input is not None
            and grad_image is not None
            and grad_image.data_ptr() != grad_input[item].data_ptr()
        ):
            grad_input[item].copy_(grad_image.permute(2, 0, 1))
    return (
        grad_input,
        _like(inputs.offset, shares[..., :2, :]) if of_offset else None,
        _like(inputs.mask, shares[..., 2, :]) if of_mask else None,
        None if grad_weights is None else _as_weight(grad_weights, inputs.weight),
    )


def _weight_gradient(
    samples: type[Samples], grad_out: Tensor, inputs: Inputs, work: _Work
) -> Tensor:
    """That of the weight alone: columns as in the forward pass, and no sum over samples."""
    grad_weights = torch.zeros_like(work.weights.transpose(2, 3).flatten(2))
    for item, grads in enumerate(work.by_group(grad_out)):
        sampled = work.samples(item)
        for first, columns in work.chunks():
            sampled.columns(first, columns)
            grad = grads[..., first : first + columns.shape[1]].to(work.dtype)
            for group, into in enumerate(grad_weights):
                samples.multiply(grad[group], columns[group].flatten(1), into, add=True)
    return _as_weight(grad_weights, inputs.weight)


def _as_weight(grad_weights: Tensor, weight: Tensor) -> Tensor:
    """(groups, out channels / groups, taps * C / groups) in the place of the weight's."""
    grads = grad_weights.view(weight.shape[0], *weight.shape[2:], -1).permute(0, 3, 1, 2)
    return torch.empty_like(weight).copy_(grads)


def _like(tensor: Tensor | None, grads: Tensor) -> Tensor | None:
    return None if tensor is None else torch.empty_like(tensor).copy_(grads.reshape(tensor.shape))


class _Work:
    """The inputs as the products take them, and the memory for the columns."""

    def __init__(self, samples: type[Samples], inputs: Inputs) -> None:
        input, offset, mask, weight = inputs[:4]
        self.dtype = sum_dtype(input, offset, mask, weight)
        self.geometry = inputs.geometry
        self._samples = samples
        self._input = input
        taps, groups = self.geometry.taps, inputs.groups
        height, width = self.geometry.out_size
        self._plane = height * width
        self._shape = (groups, taps, weight.shape[1])
        # (N, deform groups, taps, 2, pixels), (N, deform groups, taps, pixels)
        shape = (input.shape[0], inputs.deform_groups, taps)
        self.offset = offset.to(self.dtype).contiguous().view(*shape, 2, self._plane)
        self.mask = None
        if mask is not None:
            self.mask = mask.to(self.dtype).contiguous().view(*shape, self._plane)
        # (groups, out channels / groups, C / groups, taps)
        self.weights = weight.to(self.dtype).reshape(groups, -1, weight.shape[1], taps)

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
            self.geometry,
        )

    def chunks(self) -> Iterator[tuple[int, Tensor]]:
        """First pixel, and room for the columns: (groups, pixels, taps, C / groups)."""
        groups, taps, channels = self._shape
        for first in range(0, self._plane, self._pixels):
            pixels = min(self._pixels, self._plane - first)
            room = self._memory[: groups * pixels * taps * channels]
            yield first, room.view(groups, pixels, taps, channels)


def _to_add_to(grad: Tensor, dtype: torch.dtype) -> Tensor:
    """(C, H, W) as (H, W, C) of zeros: the same memory where it lies so, else memory of its own."""
    last = grad.permute(1, 2, 0)
    if last.is_contiguous() and last.dtype == dtype:
        return last.zero_()
    return torch.zeros(last.shape, dtype=dtype, device=grad.device)
