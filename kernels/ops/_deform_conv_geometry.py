"""What the backends of modulated_deform_conv2d share: the convolution's numbers, memory formats."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

Pair = tuple[int, int]
Gradients = tuple[Tensor, Tensor, Tensor | None, Tensor]
"""Of input, offset, mask and weight."""


class Geometry(NamedTuple):
    """The convolution's numbers, pairs as (vertical, horizontal)."""

    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    deform_groups: int

    def out_size(self, input: Tensor, weight: Tensor) -> Pair:
        """Height and width of the result; less than 1 where the input is too small."""
        height, width = (
            (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, padding, dilation in zip(
                input.shape[2:],
                weight.shape[2:],
                self.stride,
                self.padding,
                self.dilation,
                strict=True,
            )
        )
        return height, width


def memory_format(tensor: Tensor) -> torch.memory_format:
    """channels_last where a 4-dimensional tensor lies so and not in the usual way as well."""
    if not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return torch.contiguous_format


def empty_out(input: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The result without its numbers: the dtype, the device and the memory format of `input`."""
    return torch.empty(
        (input.shape[0], weight.shape[0], *geometry.out_size(input, weight)),
        dtype=input.dtype,
        device=input.device,
        memory_format=memory_format(input),
    )
