"""The sums of the gradient of `value` in Triton kernels: float32, or integers in a fixed order.

Many samples add to one pixel, in an order that changes from call to call, and the rounding of a
floating-point sum depends on the order. Deterministic sums are 64-bit integers, in steps.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def zeros(value: Tensor, deterministic: bool) -> Tensor:
    """Sums for the gradient of `value`.

    In 16 bits they would lose most of what many queries add to one pixel, and on sm_80 an atomic
    addition of 16-bit numbers is a loop of compare-and-swap.
    """
    dtype = torch.int64 if deterministic else torch.float32
    return torch.zeros(value.shape, dtype=dtype, device=value.device)


def steps(peak: Tensor, most_terms: int) -> Tensor:
    """How many integer steps a gradient of 1 is: the power of two that just cannot overflow.

    Not finite or zero when the peak is not finite: dividing by it then makes all of the result inf
    or NaN, which is what a gradient scaler looks for.

    Args:
        peak: () float32, the largest term of a sum.
        most_terms: how many terms a sum may have.
    """
    exponent = 62 - most_terms.bit_length() - peak.log2().ceil()
    return exponent.clamp(max=126).exp2()


def gradient(sums: Tensor, steps: Tensor | None, dtype: torch.dtype) -> Tensor:
    """What was summed, in `dtype`."""
    return (sums if steps is None else sums.to(torch.float32) / steps).to(dtype)


@triton.jit
def add(pointers, grad, weight, steps, used):
    """Add grad * weight, in the type that is summed in. The weight is zero outside."""
    term = (grad * weight * steps).to(pointers.dtype.element_ty)
    tl.atomic_add(pointers, term, (weight != 0.0) & used, sem="relaxed")
