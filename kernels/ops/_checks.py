"""What the attention operators refuse, from shapes, dtypes and devices: no device is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INDICES = (torch.int32, torch.int64)
FLAGS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_MAX_HEAD_DIM = 256
_MAX_KEYS = 2**31 - 1


def check_dtype(name: str, tensor: Tensor, accepted: tuple[torch.dtype, ...]) -> None:
    """Raise a TypeError unless the tensor has one of the dtypes."""
    if tensor.dtype not in accepted:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in accepted)
        raise TypeError(f"{name} must be one of {names}, not {str(tensor.dtype)[6:]}")


def check_rank(name: str, tensor: Tensor, layout: str) -> None:
    """Raise a ValueError unless the tensor has as many dimensions as `layout`, "(B, S, ...)"."""
    if tensor.dim() != layout.count(",") + 1:
        raise ValueError(f"{name} must be {layout}, not {tuple(tensor.shape)}")


def supports_head_dim(dim: int) -> bool:
    """Whether the attention operators, on every backend, take heads of that many channels."""
    return dim % 4 == 0 and 4 <= dim <= _MAX_HEAD_DIM


def check_head_dim(dim: int) -> None:
    """Raise a ValueError unless `supports_head_dim`."""
    if not supports_head_dim(dim):
        raise ValueError(
            f"the head dimension of value must be a multiple of 4 up to {_MAX_HEAD_DIM}, not {dim}"
        )


def check_together(
    value: Tensor,
    second: tuple[str, Tensor],
    expected: Iterable[tuple[str, Tensor, tuple[int, ...]]],
) -> None:
    """Raise unless each tensor has the shape that `value` and a second one ask for.

    Raises:
        ValueError: another shape.
        RuntimeError: another device than that of `value`.
    """
    for name, tensor, shape in expected:
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"{name} must be {shape} to go with value {tuple(value.shape)} and "
                f"{second[0]} {tuple(second[1].shape)}, not {tuple(tensor.shape)}"
            )
        if tensor.device != value.device:
            raise RuntimeError(f"{name} is on {tensor.device}, value on {value.device}")


def check_grad(grad_out: Tensor, value: Tensor, shape: tuple[int, ...]) -> None:
    """Raise unless `grad_out` is a gradient of a result of that shape, beside `value`."""
    check_dtype("grad_out", grad_out, FLOATS)
    if tuple(grad_out.shape) != shape:
        raise ValueError(f"grad_out must be {shape}, not {tuple(grad_out.shape)}")
    if grad_out.device != value.device:
        raise RuntimeError(f"grad_out is on {grad_out.device}, value on {value.device}")


def check_levels(value: Tensor, spatial_shapes: Tensor, level_start_index: Tensor) -> None:
    """Each level must lie inside `value`, (..., S, H, D). Only a CPU tensor can be read at once."""
    if value.device.type != "cpu":
        return
    keys = value.shape[-3]
    if keys > _MAX_KEYS:
        raise ValueError(f"value must have fewer than 2**31 rows, not {keys}")
    shapes: list[list[int]] = spatial_shapes.tolist()
    starts: list[int] = level_start_index.tolist()
    for level, ((height, width), start) in enumerate(zip(shapes, starts, strict=True)):
        if min(height, width, start) < 0 or start + height * width > keys:
            raise ValueError(
                f"level {level} ({height} x {width}, first row {start}) does not lie in the "
                f"{keys} rows of value"
            )


def refuse_gradient(name: str, tensor: Tensor) -> None:
    """Raise a RuntimeError where autograd would be left without a gradient, and not notice."""
    if tensor.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(f"{name} has no gradient here: pass {name}.detach()")
