"""Threads, instruction sets and roundings of the C++ kernels of BEVFormer's two attentions."""

from __future__ import annotations

import pytest
import torch
from turbo_physai.kernels import (
    _cpu_library,
    spatial_cross_attention,
    temporal_self_attention,
)
from turbo_physai.kernels.bench import __main__ as command
from turbo_physai.kernels.bench import spatial_cross_attention as spatial_bench
from turbo_physai.kernels.bench import temporal_self_attention as temporal_bench
from turbo_physai.kernels.bench.harness import peak_memory
from turbo_physai.kernels.ops import spatial_cross_attention_cpu, temporal_self_attention_cpu

pytestmark = pytest.mark.skipif(_cpu_library.library() is None, reason=str(_cpu_library.why_not()))
BASELINE, AVX2, AVX512 = 0, 1, 2
FOUR = ((6, 9), (3, 5), (2, 2), (1, 3))
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
    _cpu_library.library().turbo_physai_limit_isa(AVX512)


@pytest.fixture(params=["spatial", "temporal"])
def case(request, bev_attention):
    """An operator: its kernel, its inputs, its definition."""
    op = {"spatial": spatial_cross_attention_cpu, "temporal": temporal_self_attention_cpu}
    make = getattr(bev_attention, f"make_{request.param}")
    return op[request.param], make, getattr(bev_attention, request.param)


def everything(op, inputs, grad_out):
    return [op.forward(*inputs), *op.backward(grad_out, *inputs)]


@pytest.mark.parametrize("levels", [((6, 9),), FOUR], ids=["one level", "four levels"])
def test_the_bits_do_not_depend_on_the_number_of_threads(case, bev_attention, levels):
    op, make, _ = case
    inputs = make(queries=600, levels=levels)
    grad_out = bev_attention.out_like(inputs)
    torch.set_num_threads(1)
    alone = everything(op, inputs, grad_out)
    for threads in (2, 3, 16):
        torch.set_num_threads(threads)
        for one, other in zip(alone, everything(op, inputs, grad_out), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("isa", [BASELINE, AVX2, AVX512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [4, 44, 64, 256])
def test_every_instruction_set_computes_the_same(case, bev_attention, isa, dtype, dim):
    if _cpu_library.library().turbo_physai_limit_isa(isa) != isa:
        pytest.skip("this machine lacks it")
    op, make, definition = case
    inputs = make(dim=dim, dtype=dtype)
    grad_out = bev_attention.out_like(inputs)
    wanted = bev_attention.expected(definition, inputs, grad_out)
    for actual, one in zip(everything(op, inputs, grad_out), wanted, strict=True):
        tolerance = (1e-5 if dtype == torch.float32 else 1e-12) * one.abs().max().item()
        torch.testing.assert_close(actual.double(), one, rtol=0, atol=tolerance)


def test_a_softmax_is_exact_to_rounding_over_the_whole_range(bev_attention):
    """One pixel under each sample: the result is the pixels' mean by weight."""
    inputs = bev_attention.make_temporal(
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
