"""What the checks of the Triton kernels share: sampling by its definition, and how to compare.

Checks run in processes of their own, because Triton decides when it is imported whether it
interprets (TRITON_INTERPRET=1, on the CPU) or compiles.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
ONE, TWO, FOUR = ((5, 7),), ((4, 6), (2, 3)), ((6, 9), (3, 5), (2, 2), (1, 3))


def levels_of(sizes: tuple[tuple[int, int], ...]) -> tuple[Tensor, Tensor, int]:
    """Spatial shapes, level start indices and the number of keys."""
    shapes = torch.tensor(sizes)
    areas = shapes.prod(1)
    return shapes.to(DEVICE), (areas.cumsum(0) - areas).to(DEVICE), int(areas.sum())


def sample(
    value: Tensor, shapes: Tensor, starts: Tensor, pixels: Tensor, weights: Tensor
) -> Tensor:
    """Bilinear samples times weights, corner by corner.

    Args:
        value: (B, S, H, D).
        pixels: (B, Q, H, L, P, 2) as (x, y), 0 at the first pixel's centre.
        weights: (B, Q, H, L, P).

    Returns:
        (B, Q, H * D).
    """
    batch, _, heads, dim = value.shape
    item = torch.arange(batch, device=value.device)[:, None, None, None]
    head = torch.arange(heads, device=value.device)[:, None]
    out = value.new_zeros(batch, pixels.shape[1], heads, dim)
    for level, (height, width) in enumerate(shapes.tolist()):
        x, y = pixels[..., level, :, 0], pixels[..., level, :, 1]
        touches = (x > -1) & (x < width) & (y > -1) & (y < height)
        x, y = x.where(touches, 0), y.where(touches, 0)
        for right in (0, 1):
            for below in (0, 1):
                column, line = x.floor().long() + right, y.floor().long() + below
                fx, fy = x - x.floor(), y - y.floor()
                factor = (fx if right else 1 - fx) * (fy if below else 1 - fy)
                inside = (column >= 0) & (column < width) & (line >= 0) & (line < height) & touches
                key = (starts[level] + line * width + column).where(inside, 0)
                share = (weights[..., level, :] * factor).where(inside, 0)
                out = out + (share[..., None] * value[item, key, head]).sum(-2)
    return out.flatten(2)


def close(actual: Tensor, expected: Tensor, dtype: torch.dtype, terms: float = 0.0) -> None:
    """Sums are float32: beside the result's own rounding, that of their largest terms.

    Args:
        terms: how large terms are, where they may be larger than all that is expected.
    """
    assert actual.dtype == dtype
    assert actual.shape == expected.shape
    eps = torch.finfo(dtype).eps
    scale = max(terms, float(expected.detach().abs().max()) if expected.numel() else 0.0)
    torch.testing.assert_close(
        actual.double(), expected.detach(), rtol=2 * eps, atol=2e-6 * scale + 1e-7
    )


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory is NaN: what a kernel does not write is seen."""

    def poison(allocate: Any) -> Any:
        def allocate_nan(*args: Any, **kwargs: Any) -> Tensor:
            tensor: Tensor = allocate(*args, **kwargs)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

        return allocate_nan

    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, poison(getattr(torch, name)))
