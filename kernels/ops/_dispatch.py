"""Which backend an operator takes for the tensors at hand, and in which dtype it sums."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING

import torch

from .. import _cpu_library
from .._backends import triton_why_not

if TYPE_CHECKING:
    from torch import Tensor


def sum_dtype(*floats: Tensor) -> torch.dtype:
    """The dtype that sums are kept in: float64 when an input is, else float32."""
    wide = any(tensor.dtype == torch.float64 for tensor in floats)
    return torch.float64 if wide else torch.float32


def uses_triton(*floats: Tensor) -> bool:
    """Whether the Triton kernels take these: CUDA tensors, none of them float64."""
    if not floats[0].is_cuda or any(tensor.dtype == torch.float64 for tensor in floats):
        return False
    return triton_why_not() is None


def uses_cpu_library(op: str, value: Tensor) -> bool:
    """Whether the compiled library takes these: CPU tensors, and it is there; else say so once."""
    if value.device.type != "cpu":
        return False
    if _cpu_library.library() is None:
        _warn_of_slow_cpu(op)
        return False
    return True


@cache
def _warn_of_slow_cpu(op: str) -> None:
    warnings.warn(f"{op} runs on PyTorch's own operators: {_cpu_library.why_not()}", stacklevel=4)
