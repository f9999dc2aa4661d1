"""Linear layers by the faster of the two libraries that torch has for them on a CPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function, forward_ad

from ...common.cpu.matrix_product import is_worth_onednn, times_transposed

_ROWS = 1 << 13


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`, and that itself wherever it is not the slower one.

    By oneDNN go float32 tensors on a CPU that `onednn_pays` names, when they are large, outside of
    autocast, of compilation, of tracing and of the transforms of `torch.func`. Results differ by
    rounding.

    Args:
        input: (..., C).
        weight: (D, C).
        bias: (D,) or None.

    Returns:
        (..., D)

    Raises:
        RuntimeError: shapes or dtypes that do not go together, as torch says it.
    """
    traced = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    if traced or not _fits(input, weight, bias):
        return F.linear(input, weight, bias)
    # Shaped outside of the Function: what that returns may then be written to in place.
    rows = input.reshape(-1, input.shape[-1])
    out: Tensor = _Linear.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return out.view(*input.shape[:-1], weight.shape[0])


def linear_of_concatenation(
    first: Tensor, second: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """`torch.nn.functional.linear(torch.cat((first, second), -1), weight, bias)`.

    Args:
        first: (..., C1).
        second: (..., C2), the other dimensions as those of `first`.
        weight: (D, C1 + C2).
        bias: (D,) or None.

    Temporal self-attention of BEVFormer draws its offsets and logits from [previous map, query]:
    with the weight split alike, two products take the place of one and the copy of both inputs is
    saved. Dtypes and autocast are those of `linear`; of 16-bit inputs, each product is rounded.

    Returns:
        (..., D)

    Raises:
        ValueError: shapes that `torch.cat` or `linear` would not take either.
    """
    channels = first.shape[-1]
    if first.shape[:-1] != second.shape[:-1]:
        raise ValueError(
            f"first and second must differ in the last dimension only, not be "
            f"{tuple(first.shape)} and {tuple(second.shape)}"
        )
    if weight.dim() != 2 or weight.shape[1] != channels + second.shape[-1]:
        raise ValueError(
            f"weight must be (D, {channels} + {second.shape[-1]}), not {tuple(weight.shape)}"
        )
    for_first, for_second = weight.split_with_sizes((channels, second.shape[-1]), 1)
    return linear(second, for_second, bias) + linear(first, for_first)


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
