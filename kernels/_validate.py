"""What operators refuse, from types, layouts, dtypes, shapes and devices: no device is waited for.

Every message names the argument, what was found and what is accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INDICES = (torch.int32, torch.int64)
FLAGS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_MAX_HEAD_DIM = 256
_MAX_KEYS = 2**31 - 1


def kind(name: str, argument: Any, wanted: str) -> None:
    """Raise a TypeError unless an argument is of the type that an operator's schema declares."""
    if wanted.startswith("Tensor"):
        if argument is None and wanted == "Tensor?":
            return
        if not isinstance(argument, Tensor):
            raise TypeError(f"{name} must be a tensor, not {_type_of(argument)}")
        if argument.layout != torch.strided:
            raise TypeError(
                f"{name} must be a dense (strided) tensor, not {_name(argument.layout)}"
            )
    elif wanted == "bool":
        if not isinstance(argument, bool):
            raise TypeError(f"{name} must be True or False, not {argument!r}")
    elif wanted == "int":
        _integer(name, argument)
    elif wanted == "int[]":
        for number in argument:
            _integer(name, number)


def _integer(name: str, number: Any) -> None:
    if isinstance(number, (float, complex, bool, str, Tensor)) or number is None:
        raise TypeError(f"{name} must be an integer, not {number!r}")


def _type_of(argument: Any) -> str:
    return "None" if argument is None else type(argument).__name__


def _name(constant: torch.dtype | torch.layout) -> str:
    return str(constant).removeprefix("torch.")


def dtype(name: str, tensor: Tensor, accepted: tuple[torch.dtype, ...]) -> None:
    """Raise a TypeError unless the tensor has one of the dtypes."""
    if tensor.dtype not in accepted:
        raise TypeError(
            f"{name} must be one of {', '.join(map(_name, accepted))}, not {_name(tensor.dtype)}"
        )


def dtypes(inputs: Any, names: Iterable[str], accepted: tuple[torch.dtype, ...] = FLOATS) -> None:
    """The same for fields of an operator's inputs; None passes."""
    for name in names:
        tensor = getattr(inputs, name)
        if tensor is not None:
            dtype(name, tensor, accepted)


def rank(name: str, tensor: Tensor, layout: str) -> None:
    """Raise a ValueError unless the tensor has as many dimensions as `layout`, "(B, S, ...)"."""
    if tensor.dim() != len(layout.replace(",)", ")").split(",")):
        raise ValueError(f"{name} must be {layout}, not {tuple(tensor.shape)}")


def shapes(inputs: Any, beside: Sequence[str], expected: dict[str, tuple[int, ...]]) -> None:
    """Raise a ValueError unless fields have the shapes that those in `beside` ask for; None
    passes."""
    for name, shape in expected.items():
        tensor = getattr(inputs, name)
        if tensor is not None and tuple(tensor.shape) != shape:
            others = " and ".join(f"{one} {tuple(getattr(inputs, one).shape)}" for one in beside)
            raise ValueError(
                f"{name} must be {shape} to go with {others}, not {tuple(tensor.shape)}"
            )


def devices(inputs: Any) -> None:
    """Raise a RuntimeError unless all tensors are where the first field is."""
    first, *others = inputs._fields
    device = getattr(inputs, first).device
    for name in others:
        tensor = getattr(inputs, name)
        if isinstance(tensor, Tensor) and tensor.device != device:
            raise RuntimeError(f"{name} is on {tensor.device}, {first} on {device}")


def gradient(grad_out: Tensor, result: Tensor) -> None:
    """Raise unless `grad_out` is a gradient of a result like this one."""
    dtype("grad_out", grad_out, FLOATS)
    if grad_out.shape != result.shape:
        raise ValueError(f"grad_out must be {tuple(result.shape)}, not {tuple(grad_out.shape)}")
    if grad_out.device != result.device:
        raise RuntimeError(f"grad_out is on {grad_out.device}, the inputs on {result.device}")


def refuse_gradient(name: str, tensor: Tensor) -> None:
    """Raise a RuntimeError where autograd would be left without a gradient, and not notice."""
    if isinstance(tensor, Tensor) and tensor.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(f"{name} has no gradient here: pass {name}.detach()")


def supports_head_dim(dim: int) -> bool:
    """Whether the fused attention kernels, on every backend, take heads of that many channels.

    Other heads run on PyTorch's own operators.
    """
    return dim % 4 == 0 and 4 <= dim <= _MAX_HEAD_DIM


def head_dim_limit(inputs: Any) -> str | None:
    """Why no fused attention kernel takes these inputs, or None."""
    dim = inputs.value.shape[-1]
    if supports_head_dim(dim):
        return None
    return f"fused kernels take head dimensions that are a multiple of 4 up to 256, not {dim}"


def levels(inputs: Any) -> None:
    """Raise a ValueError unless each level lies inside `value`, (..., S, H, D).

    Only a CPU tensor can be read at once.
    """
    value, spatial_shapes, level_start_index = inputs[:3]
    if value.device.type != "cpu":
        return
    keys = value.shape[-3]
    if keys > _MAX_KEYS:
        raise ValueError(f"value must have fewer than 2**31 rows, not {keys}")
    starts: list[int] = level_start_index.tolist()
    for level, ((height, width), start) in enumerate(
        zip(spatial_shapes.tolist(), starts, strict=True)
    ):
        if min(height, width, start) < 0 or start + height * width > keys:
            raise ValueError(
                f"level {level} ({height} x {width}, first row {start}) does not lie in the "
                f"{keys} rows of value"
            )
