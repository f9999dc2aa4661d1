"""A product of two matrices into a third one: in C++ where that is faster than torch's, else there.

`_matrix_product.cpp` says where, and why.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _cpu_library
from ._cpu_call import call


def multiply_in_torch(a: Tensor, b: Tensor, out: Tensor, add: bool) -> None:
    """out (M, N) = a (M, K) @ b (K, N), or added to `out`; all of one dtype, of any strides."""
    if add:
        out.addmm_(a, b)
    else:
        torch.mm(a, b, out=out)


def multiply(a: Tensor, b: Tensor, out: Tensor, add: bool) -> None:
    """The same for CPU tensors of float32 or float64."""
    library = _cpu_library.library()
    if library is None or not library.matrix_product_pays():
        multiply_in_torch(a, b, out, add)
        return
    a, b = (t if t.stride(1) == 1 else t.contiguous() for t in (a, b))
    to = out
    if out.stride(1) != 1:
        to = out.contiguous() if add else out.new_empty(out.shape)
    sizes = [a.shape[0], b.shape[1], a.shape[1], a.stride(0), b.stride(0), to.stride(0), int(add)]
    call("matrix_product", a.dtype, [a, b, to], sizes)
    if to is not out:
        out.copy_(to)
