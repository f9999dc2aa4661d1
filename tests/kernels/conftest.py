"""Random inputs of ms_deform_attn, and its definition in float64 for autograd to differentiate."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

Levels = tuple[tuple[int, int], ...]


class Inputs(NamedTuple):
    value: Tensor
    spatial_shapes: Tensor
    level_start_index: Tensor
    sampling_locations: Tensor
    attention_weights: Tensor


@pytest.fixture(autouse=True)
def _fresh_numbers() -> None:
    """Other numbers in every run; the seed shows with a failure."""
    print("torch.manual_seed", torch.seed())


@pytest.fixture
def run_checks() -> Callable[..., None]:
    """Runs a file of checks, or the part of it with some marks, in a process of its own: Triton
    decides when it is imported whether it interprets or compiles."""

    def run_checks(checks: Path, part: str | None = None, **environment: str) -> None:
        options = ["-q", "-p", "no:cacheprovider", "-o", f"pythonpath={checks.parent}"]
        if part is not None:
            options += ["-m", part]
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *options, str(checks)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr

    return run_checks


@pytest.fixture
def deform_conv() -> ModuleType:
    """Inputs of modulated_deform_conv2d, and its definition: `deform_conv_case.py`."""
    return _load("deform_conv_case.py")


@pytest.fixture
def bev_attention() -> ModuleType:
    """Inputs and definitions of BEVFormer's two attentions: `bev_attention_case.py`."""
    return _load("bev_attention_case.py")


@cache
def _load(name: str) -> ModuleType:
    file = Path(__file__).with_name(name)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def make() -> Callable[..., Inputs]:
    return _make


@pytest.fixture
def reference() -> Callable[..., Tensor]:
    return _reference


@pytest.fixture
def expected() -> Callable[..., list[Tensor]]:
    """Output and gradients by the definition, in float64, from the inputs as they were rounded."""

    def expected(inputs: Inputs, grad_out: Tensor) -> list[Tensor]:
        wide = Inputs(
            *(t.detach().double() if t.is_floating_point() else t.detach() for t in inputs)
        )
        wanted = [wide[i].requires_grad_() for i in (0, 3, 4)]
        out = _reference(*wide)
        return [out.detach(), *torch.autograd.grad(out, wanted, grad_out.double())]

    return expected


def _make(
    *,
    batch: int = 2,
    queries: int = 11,
    heads: int = 3,
    dim: int = 8,
    levels: Levels = ((6, 9), (3, 5)),
    points: int = 4,
    dtype: torch.dtype = torch.float32,
    location_dtype: torch.dtype | None = None,
    requires_grad: bool = False,
) -> Inputs:
    """Locations reach two pixels beyond each level, and keep away from where slopes jump."""
    shapes = torch.tensor(levels)
    areas = shapes.prod(1)
    bags = (batch, queries, heads, len(levels), points)
    sizes = shapes.flip(1)[:, None].double()
    pixels = (torch.rand(*bags, 2, dtype=torch.float64) * (sizes + 4)).floor() - 2
    locations = (pixels + 0.5 + 0.05 + 0.9 * torch.rand_like(pixels)) / sizes
    inputs = Inputs(
        torch.randn(batch, int(areas.sum()), heads, dim).to(dtype),
        shapes,
        areas.cumsum(0) - areas,
        locations.to(location_dtype or dtype),
        torch.rand(bags).flatten(3).softmax(-1).view(bags).to(dtype),
    )
    for tensor in inputs:
        if tensor.is_floating_point():
            tensor.requires_grad_(requires_grad)
    return inputs


def _reference(
    value: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor, weights: Tensor
) -> Tensor:
    """The definition, corner by corner."""
    batch, _, heads, dim = value.shape
    out = value.new_zeros(batch, locations.shape[1], heads, dim)
    item = torch.arange(batch).view(-1, 1, 1, 1)
    head = torch.arange(heads).view(-1, 1)
    for level, (height, width) in enumerate(shapes.tolist()):
        x = locations[..., level, :, 0] * width - 0.5
        y = locations[..., level, :, 1] * height - 0.5
        for dy in (0, 1):
            for dx in (0, 1):
                column, line = x.floor() + dx, y.floor() + dy
                inside = (column >= 0) & (column < width) & (line >= 0) & (line < height)
                column, line = column.where(inside, 0).long(), line.where(inside, 0).long()
                factor = (1 - (x - column).abs()) * (1 - (y - line).abs())
                scale = (weights[..., level, :] * factor).masked_fill(~inside, 0)
                pixel = value[item, starts[level] + line * width + column, head]
                out = out + (scale[..., None] * pixel.where(inside[..., None], 0)).sum(-2)
    return out.flatten(2)
