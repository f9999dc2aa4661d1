"""`modulated_deform_conv2d` against a `grid_sample` formulation, and torchvision where it runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...bench.harness import Case, passes
from . import modulated_deform_conv2d

Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
Operator = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
PADDING = 1


@dataclass(frozen=True)
class Shape:
    """A 3 x 3 kernel that keeps size and channels: every DCNv2 of a residual network but a few."""

    batch: int
    channels: int
    height: int
    width: int
    channels_last: bool = False


SHAPES: Mapping[str, Shape] = {
    # One camera of BEVFormer-small (736 x 1280 images), stages 3 and 4 of ResNet-101-DCN.
    "stage-3": Shape(1, 256, 46, 80),
    "stage-4": Shape(1, 512, 23, 40),
    "stage-3-cl": Shape(1, 256, 46, 80, channels_last=True),
    # The same stages of BEVFormer-base (928 x 1600).
    "base-3": Shape(1, 256, 58, 100),
    "base-4": Shape(1, 512, 29, 50),
}


def make_inputs(shape: Shape, dtype: torch.dtype, device: torch.device) -> Inputs:
    """Random values, offsets of some two pixels: input, offset, mask, weight, bias."""
    generator = torch.Generator().manual_seed(0)

    def randn(*size: int) -> Tensor:
        return torch.randn(size, generator=generator)

    channels, size = shape.channels, (shape.height, shape.width)
    memory = torch.channels_last if shape.channels_last else torch.contiguous_format
    tensors = (
        randn(shape.batch, channels, *size).to(memory_format=memory),
        2 * randn(shape.batch, 18, *size),
        randn(shape.batch, 9, *size).sigmoid(),
        randn(channels, channels, 3, 3) / (9 * channels) ** 0.5,
        randn(channels),
    )
    given = [tensor.to(device, dtype).requires_grad_() for tensor in tensors]
    return given[0], given[1], given[2], given[3], given[4]


def turbo_physai(
    input: Tensor, offset: Tensor, mask: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """The operator with the padding of the shapes here."""
    return modulated_deform_conv2d(input, offset, mask, weight, bias, padding=PADDING)


def grid_sample_reference(
    input: Tensor, offset: Tensor, mask: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """All columns through `grid_sample`, then one product with the weights."""
    batch, channels, height, width = input.shape
    kernel_h, kernel_w = weight.shape[2:]
    out_height, out_width = offset.shape[2:]
    device, dtype = input.device, input.dtype
    taps = torch.arange(kernel_h * kernel_w, device=device)[:, None, None]
    y = torch.arange(out_height, device=device)[:, None] - PADDING + taps // kernel_w
    x = torch.arange(out_width, device=device) - PADDING + taps % kernel_w
    shifts = offset.view(batch, -1, 2, out_height, out_width)
    grid = torch.stack(
        (
            (x + shifts[:, :, 1]) * (2 / width) + (1 / width - 1),
            (y + shifts[:, :, 0]) * (2 / height) + (1 / height - 1),
        ),
        -1,
    )
    columns = F.grid_sample(input, grid.flatten(2, 3).to(dtype), align_corners=False)
    columns = columns * mask.flatten(2)[:, None]
    out = weight.flatten(1) @ columns.reshape(batch, channels * kernel_h * kernel_w, -1)
    return out.view(batch, -1, out_height, out_width) + bias.view(-1, 1, 1)


def peers(device: torch.device) -> dict[str, Operator]:
    """torchvision's operator where it is installed."""
    try:
        ops: Any = importlib.import_module("torchvision.ops")
    except Exception:  # beside a torch that it was not built for, it fails in several ways
        return {}

    def torchvision(
        input: Tensor, offset: Tensor, mask: Tensor, weight: Tensor, bias: Tensor
    ) -> Tensor:
        out: Tensor = ops.deform_conv2d(input, offset, weight, bias, padding=PADDING, mask=mask)
        return out

    return {"torchvision": torchvision}


def cases(names: list[str], dtype: torch.dtype, device: torch.device) -> Iterator[Case]:
    """A forward and a forward+backward case for each of the named shapes."""
    for name in names:
        inputs = make_inputs(SHAPES[name], dtype, device)
        operators: dict[str, Operator] = {
            "grid_sample": grid_sample_reference,
            "turbo_physai": turbo_physai,
            **peers(device),
        }
        yield from passes(name, operators, inputs, inputs)
