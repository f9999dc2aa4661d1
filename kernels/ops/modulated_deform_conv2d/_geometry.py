"""The numbers of a convolution, and memory formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Pair = tuple[int, int]


class Geometry(NamedTuple):
    """The convolution's numbers, pairs as (vertical, horizontal)."""

    in_size: Sequence[int]
    kernel: Sequence[int]
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    deform_groups: int

    @property
    def out_size(self) -> Pair:
        """Height and width of the result; less than 1 where the input is too small."""
        height, width = (
            (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, padding, dilation in zip(*self[:5], strict=True)
        )
        return height, width

    @property
    def taps(self) -> int:
        """Of the kernel."""
        return self.kernel[0] * self.kernel[1]


def memory_format(tensor: Tensor) -> torch.memory_format:
    """channels_last where a 4-dimensional tensor lies so and not in the usual way as well."""
    if not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return torch.contiguous_format
