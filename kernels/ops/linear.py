"""A linear layer that takes the faster of the two libraries that torch has for it on a CPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function, forward_ad

from ._matrix_product import is_worth_onednn, times_transposed

_ROWS = 1 << 13


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`, and that itself wherever it is not the slower one.

    By oneDNN go float32 tensors on a CPU that `_matrix_product` names, when they are large, outside
    of autocast, of compilation and of the transforms of `torch.func`. Results differ by rounding.

    Args:
        input: (..., C).
        weight: (D, C).
        bias: (D,) or None.

    Returns:
        (..., D)

    Raises:
        RuntimeError: shapes or dtypes that do not go together, as torch says it.
    """
    if torch.compiler.is_compiling() or not _fits(input, weight, bias):
        return F.linear(input, weight, bias)
    # Shaped outside of the Function: what that returns may then be written to in place.
    rows = input.reshape(-1, input.shape[-1])
    out: Tensor = _Linear.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return out.view(*input.shape[:-1], weight.shape[0])


def _fits(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    tensors = (input, weight) if bias is None else (input, weight, bias)
    return (
        all(_is_plain(tensor) for tensor in tensors)
        and input.dim() > 0
        and weight.dim() == 2
        and weight.shape[1] == input.shape[-1]
        and (bias is None or bias.shape == weight.shape[:1])
        and is_worth_onednn(input.numel(), weight.shape[0], 1, input.dtype)
        and not torch.is_autocast_enabled("cpu")
        and forward_ad._current_level < 0
    )


def _is_plain(tensor: Tensor) -> bool:
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


class _Linear(Function):
    """(R, C), (D, C), (D,) -> (R, D)"""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return times_transposed(rows, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        # A graph of this pass is asked for where a second derivative is.
        multiply = torch.mm if torch.is_grad_enabled() else _multiply
        # oneDNN copies what lies across, and with many rows that costs more than is won.
        across = multiply if rows.shape[0] <= _ROWS else torch.mm
        return (
            multiply(grad, weight) if of_rows else None,
            across(grad.t(), rows) if of_weight else None,
            grad.sum(0) if of_bias else None,
        )


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    return times_transposed(a, b.t())
