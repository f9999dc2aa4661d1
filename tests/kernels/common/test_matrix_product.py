"""The product of matrices in either library, against float64."""

from __future__ import annotations

import pytest
import torch
from turbo_physai.kernels.common.cpu import matrix_product as _matrix_product


@pytest.fixture(autouse=True, params=["MKL", "oneDNN"])
def _library(request, monkeypatch):
    """As on a machine where the one or the other is faster."""
    if request.param == "oneDNN" and not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(_matrix_product, "onednn_pays", lambda: request.param == "oneDNN")


def laid_out(matrix, how):
    if how == "transposed":
        return matrix.t().contiguous().t()
    if how == "part":
        return torch.nn.functional.pad(matrix, (3, 2))[:, 3:-2]
    return matrix


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [(30, 50, 40), (1, 1, 1), (200, 300, 90), (3, 0, 5)])
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("how", ["plain", "transposed", "part"])
def test_matrices_may_lie_in_any_way(size, how, add, dtype):
    rows, depth, columns = size
    a, b = (laid_out(torch.randn(s, dtype=dtype), how) for s in ((rows, depth), (depth, columns)))
    before = torch.randn(rows, columns, dtype=dtype)
    out = laid_out(before.clone() if add else torch.full_like(before, float("nan")), how)
    around = out._base.clone() if how == "part" else None
    _matrix_product.multiply(a, b, out, add)
    wanted = a.double() @ b.double()
    wanted = wanted + before.double() if add else wanted
    rounding = 1e-13 if dtype == torch.float64 else 2e-6
    torch.testing.assert_close(out.double(), wanted, rtol=0, atol=rounding * max(depth, 1))
    if around is not None:  # what lies beside the result stays
        assert torch.equal(out._base[:, :3], around[:, :3])
        assert torch.equal(out._base[:, -2:], around[:, -2:])
