"""Threads, instruction sets and processes of the C++ kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from turbo_physai.kernels import _cpu_library
from turbo_physai.kernels.ops import ms_deform_attn_cpu as op

pytestmark = pytest.mark.skipif(_cpu_library.library() is None, reason=str(_cpu_library.why_not()))
BASELINE, AVX2, AVX512 = 0, 1, 2


@pytest.fixture(autouse=True)
def _restore():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    library = _cpu_library.library()
    library.turbo_physai_limit_isa(AVX512)
    library.turbo_physai_use_openmp(_cpu_library._gomp_parallel())


def everything(inputs, grad_out):
    return [op.forward(*inputs), *op.backward(grad_out, *inputs)]


@pytest.mark.parametrize("pool", ["torch's OpenMP", "own threads"])
def test_the_bits_do_not_depend_on_the_number_of_threads(make, pool):
    if pool == "own threads":
        _cpu_library.library().turbo_physai_use_openmp(None)
    inputs = make(queries=600, dim=32)
    grad_out = torch.randn(2, 600, 96)
    torch.set_num_threads(1)
    alone = everything(inputs, grad_out)
    for threads in (2, 3, 16):
        torch.set_num_threads(threads)
        for one, other in zip(alone, everything(inputs, grad_out), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("isa", [BASELINE, AVX2, AVX512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [4, 44, 64, 256])
def test_every_instruction_set_computes_the_same(make, expected, isa, dtype, dim):
    if _cpu_library.library().turbo_physai_limit_isa(isa) != isa:
        pytest.skip("this machine lacks it")
    inputs = make(dim=dim, dtype=dtype)
    grad_out = torch.randn(2, 11, 3 * dim, dtype=dtype)
    wanted = expected(inputs, grad_out)
    for actual, one in zip(everything(inputs, grad_out), wanted, strict=True):
        tolerance = (2e-5 if dtype == torch.float32 else 1e-12) * one.abs().max().item()
        torch.testing.assert_close(actual.double(), one, rtol=0, atol=tolerance)


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"),
    reason="torch's grid_sample rounds otherwise here",
)
@pytest.mark.parametrize("size", [20, 25, 50, 200])
def test_a_sample_between_two_pixels_has_the_gradient_that_grid_sample_gives(size):
    cells = (torch.arange(size) + 0.5) / size  # a regular grid: every sample is such a one
    offsets = torch.arange(-3, 4) / size
    x = (cells[:, None] + offsets).flatten()
    locations = torch.stack((x, x.flip(0)), -1).view(1, -1, 1, 1, 1, 2)
    value, weights = torch.randn(1, size * size, 1, 4), torch.ones(locations.shape[:-1])
    grad_out = torch.randn(1, x.numel(), 4)
    shapes, starts = torch.tensor([[size, size]]), torch.tensor([0])

    _, found, _ = op.backward(grad_out, value, shapes, starts, locations, weights)

    grid = (2 * locations.view(1, 1, -1, 2) - 1).requires_grad_()
    image = value.transpose(1, 3).reshape(1, 4, size, size)
    sampled = torch.nn.functional.grid_sample(image, grid, align_corners=False)
    (by_grid,) = torch.autograd.grad(sampled, grid, grad_out.transpose(1, 2)[:, :, None])
    torch.testing.assert_close(found.view(1, 1, -1, 2), 2 * by_grid, rtol=1e-4, atol=1e-3 * size)


def test_a_forked_child_does_not_wait_for_threads_that_stayed_behind():
    script = """if True:
        import os, torch
        from turbo_physai.kernels import ms_deform_attn
        torch.set_num_threads(2)
        inputs = (torch.randn(1, 16, 8, 32), torch.tensor([[4, 4]]), torch.tensor([0]),
                  torch.rand(1, 2000, 8, 1, 4, 2), torch.rand(1, 2000, 8, 1, 4))
        before = ms_deform_attn(*inputs)
        if (child := os.fork()) == 0:  # where torch's own parallel loops would wait forever
            after = ms_deform_attn(*inputs)
            os._exit(0 if before.numpy().tobytes() == after.numpy().tobytes() else 1)
        raise SystemExit(os.waitpid(child, 0)[1])
    """
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)


@pytest.mark.slow
def test_data_loader_workers_may_use_it():
    script = """if True:
        import torch
        from turbo_physai.kernels import ms_deform_attn
        inputs = (torch.randn(1, 16, 8, 32), torch.tensor([[4, 4]]), torch.tensor([0]),
                  torch.rand(1, 2000, 8, 1, 4, 2), torch.rand(1, 2000, 8, 1, 4))
        class Data(torch.utils.data.Dataset):
            __len__ = lambda self: 4
            __getitem__ = lambda self, index: ms_deform_attn(*inputs)
        torch.set_num_threads(2)
        here = ms_deform_attn(*inputs)
        for there in torch.utils.data.DataLoader(Data(), None, num_workers=2,
                                                 multiprocessing_context="fork"):
            assert torch.equal(here, there)
    """
    subprocess.run([sys.executable, "-c", script], timeout=120, check=True)
