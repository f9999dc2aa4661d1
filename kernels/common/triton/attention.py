"""What the fused attention kernels in Triton share: rows of a program, softmax and its gradient.

A row is a (query, head) pair of a batch item; its logits lie side by side. Softmax is not stored:
its maximum and the logarithm of its sum are, and a weight is computed where it is needed.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import sums
from .launch import Size

LOG2_E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-1e38)


def softmax_chunk(samples: int, size: Size) -> int:
    """How many of a row's logits are read at a time: up to eight a thread."""
    most = max(1, 256 * size.warps // size.rows)
    return min(most, int(triton.next_power_of_2(max(1, samples))))


def weight_gradients(grad_logits: Tensor) -> Tensor:
    """Where a kernel keeps the gradients of the weights until it knows those of the logits.

    They are float32, because softmax's gradient takes differences of them; where `grad_logits` is
    float32 too, it is the place.
    """
    if grad_logits.dtype == torch.float32:
        return grad_logits
    return torch.empty_like(grad_logits, dtype=torch.float32)


def attention_steps(grad_out: Tensor, logits: Tensor) -> Tensor:
    """Steps of deterministic sums. A pixel gets at most one term a sample, at most the gradient:
    weights and bilinear factors are 1 or less."""
    # A logit of NaN or inf makes weights NaN.
    peak = grad_out.abs().amax().float() + 0 * logits.amax().float()
    return sums.steps(peak, logits.shape[1] * logits.shape[-1])


@triton.jit
def program_rows(queries, HEADS: tl.constexpr, ROWS: tl.constexpr):
    """What this program computes: queries of one head side by side read pixels side by side.

    Returns:
        The batch item (int64), the head, the first query; (ROWS,) each row's query counted from
        the first, and which rows there are. Rows past the last query repeat it, so that no load
        needs a mask. Counted from the first, rows fit into 32 bits, and so take half the registers.
    """
    blocks = tl.cdiv(queries, ROWS)
    item = (tl.program_id(0) // blocks // HEADS).to(tl.int64)
    head = tl.program_id(0) // blocks % HEADS
    first = tl.program_id(0) % blocks * ROWS
    row = tl.arange(0, ROWS)
    return item, head, first, tl.minimum(row, queries - 1 - first), row < queries - first


@triton.jit
def in_row_layout(numbers):
    """Convert a reduction's result, (ROWS,), to the layout of per-row loads, once.

    The compiler would else emit a `convert_layout` for every sample. A gather is what it does not
    look through.
    """
    return tl.gather(numbers, tl.arange(0, numbers.shape[0]), 0)


@triton.jit
def softmax_statistics(logits, first_sample, samples, CHUNK: tl.constexpr):
    """The maximum of every row's logits and log2 of the sum of exp(logit - maximum).

    As in torch, a row with a logit of NaN or inf, or of nothing but -inf, gets weights of NaN.

    Args:
        logits: a pointer; `first_sample` (ROWS,) leads to each row's first.
    """
    ROWS: tl.constexpr = first_sample.shape[0]
    # Lowest instead of -inf: while all that was seen is -inf, no difference is -inf - -inf.
    maximum = tl.full((ROWS,), LOWEST, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for first in range(0, samples, CHUNK):
        column = first + tl.arange(0, CHUNK)[None, :]
        chunk = first_sample[:, None] + column
        chunk = tl.load(logits + chunk, column < samples, other=-float("inf"))
        chunk = chunk.to(tl.float32)
        earlier = maximum
        maximum = tl.maximum(maximum, tl.max(chunk, 1))
        terms = tl.exp2((chunk - maximum[:, None]) * LOG2_E)
        total = total * tl.exp2((earlier - maximum) * LOG2_E) + tl.sum(terms, 1)
    return in_row_layout(maximum), in_row_layout(tl.log2(total))


@triton.jit
def softmax_weight(logit, maximum, log2_sum):
    """exp(logit - maximum) / sum."""
    return tl.exp2((logit.to(tl.float32) - maximum) * LOG2_E - log2_sum)


@triton.jit
def store_logit_gradients(
    grad_logits,
    grad_weights,
    logits,
    first_sample,
    maximum,
    log2_sum,
    mean,
    live,
    samples,
    CHUNK: tl.constexpr,
):
    """Softmax's gradient, weight * (gradient of the weight - the mean of these over the weights).

    Args:
        grad_logits, grad_weights, logits: pointers; `first_sample` (ROWS,) leads to each row's
            first. The first two may be the same. This program has stored `grad_weights`, in other
            threads perhaps.
        mean: (ROWS,) sum of weight * gradient of the weight.
        live: (ROWS,) which rows there are.
    """
    tl.debug_barrier()
    for first in range(0, samples, CHUNK):
        column = first + tl.arange(0, CHUNK)[None, :]
        there = live[:, None] & (column < samples)
        sample = first_sample[:, None] + column
        logit = tl.load(logits + sample, there, other=-float("inf"))
        weight = softmax_weight(logit, maximum[:, None], log2_sum[:, None])
        grad = tl.load(grad_weights + sample, there, other=0.0) - mean[:, None]
        grad = (weight * grad).to(grad_logits.dtype.element_ty)
        tl.store(grad_logits + sample, grad, there)
