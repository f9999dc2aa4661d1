"""Products of float32 matrices on the CPU, by oneDNN where torch's usual library is slower.

torch multiplies float32 with Intel's MKL, which keeps to AVX2 on the processors of other makers.
oneDNN, which torch is built with as well, takes what there is: on an AMD processor with AVX-512
(Zen 5), 2500 x 256 times 256 x 256 ran at 105 GFLOP/s with the one and at 245 with the other, on
one thread.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

# Below, what a call costs weighs more than what it saves.
_WORTH_IT = 1 << 20


@cache
def onednn_pays() -> bool:
    """Whether oneDNN is the faster library for large matrices on this machine."""
    return (
        torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and not _is_of_intel()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _is_of_intel() -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    return not cpuinfo.exists() or "GenuineIntel" in cpuinfo.read_text()


def is_worth_onednn(rows: int, columns: int, depth: int, dtype: torch.dtype) -> bool:
    """Whether a product of these sizes is better left to `times_transposed`."""
    return dtype == torch.float32 and rows * columns * depth >= _WORTH_IT and onednn_pays()


def times_transposed(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a (M, K) times the transpose of b (N, K), plus `bias` (N,), by oneDNN: (M, N). float32, any
    strides, outside of autograd."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(_dense(a), _dense(b), bias, "none", [], "")
    return product


def _dense(matrix: Tensor) -> Tensor:
    """oneDNN takes rows or columns side by side; for part of a matrix it has no fast code."""
    is_dense = matrix.is_contiguous() or matrix.t().is_contiguous()
    return matrix if is_dense else matrix.contiguous()


def multiply(a: Tensor, b: Tensor, out: Tensor, add: bool) -> None:
    """out (M, N) = a (M, K) @ b (K, N), or added to `out`; CPU, all of one dtype, any strides."""
    if is_worth_onednn(a.shape[0], b.shape[1], a.shape[1], a.dtype):
        product = times_transposed(a, b.t())
        out.add_(product) if add else out.copy_(product)
    elif add:
        out.addmm_(a, b)
    else:
        torch.mm(a, b, out=out)
