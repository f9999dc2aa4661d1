"""The product of matrices in C++ and in torch, against float64."""

from __future__ import annotations

import pytest
import torch
from turbo_physai.kernels import _cpu_library
from turbo_physai.kernels.ops import _matrix_product
from turbo_physai.kernels.ops._cpu_call import call

BASELINE, AVX2, AVX512 = 0, 1, 2
# Tiles of 6 or 12 rows and 8 to 32 columns, 120 rows a task, 384 numbers summed at a time.
SIZES = [(1, 1, 1), (5, 3, 2), (12, 32, 384), (13, 33, 385), (121, 70, 7), (255, 8, 900)]

pytestmark = pytest.mark.skipif(_cpu_library.library() is None, reason=str(_cpu_library.why_not()))


@pytest.fixture
def _widest_afterwards():
    yield
    _cpu_library.library().turbo_physai_limit_isa(AVX512)


@pytest.fixture(autouse=True)
def _poison():
    """Every torch.empty comes full of NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def close(actual, wanted):
    rounding = 1e-13 if actual.dtype == torch.float64 else 2e-6
    atol = rounding * max(1.0, wanted.abs().max().item())
    torch.testing.assert_close(actual.double(), wanted, rtol=0, atol=atol)


@pytest.mark.usefixtures("_widest_afterwards")
@pytest.mark.parametrize("isa", [BASELINE, AVX2, AVX512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("add", [0, 1])
def test_every_instruction_set_multiplies(isa, dtype, size, add):
    if _cpu_library.library().turbo_physai_limit_isa(isa) != isa:
        pytest.skip("this machine lacks it")
    rows, columns, depth = size
    a, b = torch.randn(rows, depth, dtype=dtype), torch.randn(depth, columns, dtype=dtype)
    before = torch.randn(rows, columns, dtype=dtype) if add else torch.empty(rows, columns).to(a)
    out = before.clone()
    call("matrix_product", dtype, [a, b, out], [*size, depth, columns, columns, add])
    wanted = a.double() @ b.double()
    close(out, wanted + before.double() if add else wanted)


def laid_out(matrix, how):
    if how == "transposed":
        return matrix.t().contiguous().t()
    if how == "part":
        return torch.nn.functional.pad(matrix, (3, 2))[:, 3:-2]
    return matrix


@pytest.mark.parametrize("function", [_matrix_product.multiply, _matrix_product.multiply_in_torch])
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("how", ["plain", "transposed", "part"])
def test_matrices_may_lie_in_any_way(function, how, add):
    a, b = (laid_out(torch.randn(size), how) for size in ((30, 50), (50, 40)))
    before = torch.randn(30, 40)
    out = laid_out(before.clone(), how)
    around = out._base.clone() if how == "part" else None
    function(a, b, out, add)
    wanted = a.double() @ b.double()
    close(out, wanted + before.double() if add else wanted)
    if around is not None:  # what lies beside the result stays
        assert torch.equal(out._base[:, :3], around[:, :3])
        assert torch.equal(out._base[:, -2:], around[:, -2:])


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_any_number_of_threads_gives_the_same(threads):
    a, b = torch.randn(250, 500), torch.randn(500, 90)

    def product():
        out = torch.empty(250, 90)
        call("matrix_product", a.dtype, [a, b, out], [250, 90, 500, 500, 90, 90, 0])
        return out

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = product()
        torch.set_num_threads(threads)
        assert torch.equal(product(), alone)
    finally:
        torch.set_num_threads(before)
