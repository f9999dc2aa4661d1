"""Threads, instruction sets and roundings of the C++ kernels of the attention operators."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from kernel_cases import FOUR, TEMPORAL
from kernel_checks import expected, grad_like
from turbo_physai.kernels import spatial_cross_attention, temporal_self_attention
from turbo_physai.kernels.bench import __main__ as command
from turbo_physai.kernels.bench.harness import peak_memory
from turbo_physai.kernels.common.cpu import library
from turbo_physai.kernels.ops.ms_deform_attn import Inputs, _cpu
from turbo_physai.kernels.ops.spatial_cross_attention import bench as spatial_bench
from turbo_physai.kernels.ops.temporal_self_attention import bench as temporal_bench

pytestmark = pytest.mark.skipif(library.library() is None, reason=str(library.why_not()))
BASELINE, AVX2, AVX512 = 0, 1, 2
CPU = torch.device("cpu")
as_grid_sample = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"),
    reason="torch's grid_sample rounds otherwise here",
)


@pytest.fixture(autouse=True)
def _restore():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    loaded = library.library()
    loaded.turbo_physai_limit_isa(AVX512)
    loaded.turbo_physai_use_openmp(library._gomp_parallel())


def everything(attention, inputs, grad_out):
    tensors = [inputs[i].requires_grad_() for i in (0, 3, 4)]
    out = attention.function(*inputs)
    return [out, *torch.autograd.grad(out, tensors, grad_out)]


@pytest.mark.parametrize("pool", ["torch's OpenMP", "own threads"])
@pytest.mark.parametrize("levels", [((6, 9),), FOUR], ids=["one level", "four levels"])
def test_the_bits_do_not_depend_on_the_number_of_threads(attention, levels, pool):
    if pool == "own threads":
        library.library().turbo_physai_use_openmp(None)
    inputs = attention.make(queries=600, levels=levels)
    grad_out = grad_like(inputs)
    torch.set_num_threads(1)
    alone = everything(attention, inputs, grad_out)
    for threads in (2, 3, 16):
        torch.set_num_threads(threads)
        for one, other in zip(alone, everything(attention, inputs, grad_out), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("isa", [BASELINE, AVX2, AVX512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [4, 44, 64, 256])
def test_every_instruction_set_computes_the_same(attention, isa, dtype, dim):
    if library.library().turbo_physai_limit_isa(isa) != isa:
        pytest.skip("this machine lacks it")
    inputs = attention.make(dim=dim, dtype=dtype)
    grad_out = grad_like(inputs)
    wanted = expected(inputs, grad_out)
    for actual, one in zip(everything(attention, inputs, grad_out), wanted, strict=True):
        tolerance = (2e-5 if dtype == torch.float32 else 1e-12) * one.abs().max().item()
        torch.testing.assert_close(actual.double(), one, rtol=0, atol=tolerance)


def test_a_softmax_is_exact_to_rounding_over_the_whole_range():
    """One pixel under each sample: the result is the pixels' mean by weight."""
    inputs = TEMPORAL.make(
        batch=1, queries=300, heads=1, dim=8, entries=1, levels=((1, 8),), points=8
    )
    inputs.value[:] = torch.eye(8)[None, :, None]
    inputs.reference_points[:] = torch.tensor([0.5 / 8, 0.5])
    inputs.offsets[:] = torch.stack((torch.arange(8.0), torch.zeros(8)), -1)
    inputs.logits.mul_(torch.logspace(-3, 1, 300)[:, None, None, None])
    found = temporal_self_attention(*inputs).double()
    wanted = inputs.logits[:, :, 0, 0].double().softmax(-1)
    torch.testing.assert_close(found, wanted, rtol=3e-6, atol=0)


def close_to(found, wanted):
    """Within 1e-6 of the largest number: a sample that took the other side would show."""
    for one, other in zip(found, wanted, strict=True):
        limit = 2e-6 * other.abs().max().item()
        torch.testing.assert_close(one, other, rtol=0, atol=limit)


def results(function, inputs, wanted):
    out = function(*inputs)
    grad = torch.sin(torch.arange(out.numel()).view_as(out) * 0.7)
    return [out, *torch.autograd.grad(out, wanted, grad)]


@as_grid_sample
@pytest.mark.parametrize("size", [20, 25, 50])
def test_temporal_samples_between_two_pixels_take_the_side_of_grid_sample(size):
    shape = temporal_bench.Shape((size, size), heads=2, dim=8)
    inputs = temporal_bench.make_inputs(shape, torch.float32, CPU)
    offsets = inputs[3]
    with torch.no_grad():  # whole and half pixels, from a regular grid: all lie on a border
        offsets.copy_((offsets * 2).round() / 2)
    wanted = (inputs[0], offsets, inputs[4])
    close_to(
        results(temporal_self_attention, inputs, wanted),
        results(temporal_bench.official, inputs, wanted),
    )


@as_grid_sample
@pytest.mark.parametrize("levels", [((15, 25),), ((16, 20), (8, 10), (4, 5))])
def test_spatial_samples_between_two_pixels_take_the_side_of_grid_sample(levels):
    shape = spatial_bench.Shape((20, 20), levels, heads=2, dim=8)
    inputs = list(spatial_bench.make_inputs(shape, torch.float32, CPU))
    height, width = levels[0]
    references = inputs[5] * torch.tensor([width, height])
    inputs[5] = (references.round() + 0.5) / torch.tensor([width, height])
    with torch.no_grad():
        inputs[3].copy_((inputs[3] * 2).round() / 2)
    wanted = (inputs[0], inputs[3], inputs[4])
    close_to(
        results(spatial_cross_attention, inputs, wanted),
        results(spatial_bench.official, inputs, wanted),
    )


def test_the_official_formulation_of_the_first_item_is_the_switch():
    shape = spatial_bench.Shape((10, 10), FOUR, batch=2, heads=2, dim=8)
    inputs = list(spatial_bench.make_inputs(shape, torch.float32, CPU))
    inputs[6] = torch.rand(inputs[6].shape) < 0.3
    wanted = (inputs[0], inputs[3], inputs[4])

    def switched(*inputs):
        return spatial_cross_attention(*inputs, first_item_visibility=True)

    official = results(spatial_bench.official, inputs, wanted)
    close_to(results(switched, inputs, wanted), official)
    own = spatial_cross_attention(*inputs)
    torch.testing.assert_close(own[0], official[0][0])
    assert not torch.allclose(own[1], official[0][1])


@pytest.mark.parametrize("bench", [spatial_bench, temporal_bench])
def test_a_layer_is_the_official_layer_at_a_fraction_of_its_memory(bench):
    shape = {
        spatial_bench: lambda: spatial_bench.Shape((20, 20), FOUR, layer=True, heads=2, dim=8),
        temporal_bench: lambda: temporal_bench.Shape((20, 20), layer=True, heads=2, dim=8),
    }[bench]()
    forward, both = bench._layer_cases("small", shape, torch.float32, CPU)
    for case in (forward, both):
        peaks = {name: peak_memory(step, CPU) for name, step in case.steps.items()}
        assert peaks["turbo_physai"] < 0.4 * peaks["official"]


@pytest.mark.parametrize(
    ("name", "bench"),
    [("spatial_cross_attention", spatial_bench), ("temporal_self_attention", temporal_bench)],
)
def test_the_benchmark_runs_the_operator_and_the_layer(name, bench, monkeypatch, capsys):
    small = [(10, 10), ((6, 9),)][: 2 if bench is spatial_bench else 1]
    shapes = {
        "op": bench.Shape(*small, heads=2, dim=8),
        "layer": bench.Shape(*small, layer=True, heads=2, dim=8),
    }
    monkeypatch.setattr(bench, "SHAPES", shapes)
    command.main([name, "--runs", "1", "--device", "cpu"])
    rows = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    for shape in shapes:
        for direction in ("forward", "forward+backward"):
            for implementation in ("official", "turbo_physai"):
                assert [shape, direction, implementation] in rows


@as_grid_sample
@pytest.mark.parametrize("size", [20, 25, 50, 200])
def test_a_sample_between_two_pixels_has_the_gradient_that_grid_sample_gives(size):
    cells = (torch.arange(size) + 0.5) / size  # a regular grid: every sample is such a one
    offsets = torch.arange(-3, 4) / size
    x = (cells[:, None] + offsets).flatten()
    locations = torch.stack((x, x.flip(0)), -1).view(1, -1, 1, 1, 1, 2)
    value, weights = torch.randn(1, size * size, 1, 4), torch.ones(locations.shape[:-1])
    grad_out = torch.randn(1, x.numel(), 4)
    shapes, starts = torch.tensor([[size, size]]), torch.tensor([0])

    inputs = Inputs(value, shapes, starts, locations, weights)
    _, found, _ = _cpu.backward(grad_out, inputs)

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
