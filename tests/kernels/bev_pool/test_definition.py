"""bev_pool follows its definition on every backend, output and gradient; its mistakes, its face."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from kernel_cases import BEV_POOL
from kernel_checks import FLOATS, check, close, expected, grad_like
from turbo_physai.kernels import bev_pool
from turbo_physai.kernels.common.cpu import library
from turbo_physai.kernels.faces import bev_pool_ext
from turbo_physai.kernels.ops.bev_pool import bench


@pytest.fixture
def make(backend):
    return lambda **options: BEV_POOL.make(device=backend.device, **options)


@pytest.mark.parametrize("channels", [1, 3, 4, 16, 80, 129, 300])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_output_and_gradient_follow_the_definition(backend, make, channels, dtype):
    if dtype not in backend.floats:
        pytest.skip("not computed in")
    check(backend, make(channels=channels, dtype=dtype, points=60))


@pytest.mark.parametrize("points", [1, 7, 2000])
def test_any_number_of_points(backend, make, points):
    check(backend, make(points=points, channels=4, batch=1))


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_indices_may_be_of_either_width(backend, make, index):
    inputs = make()
    indices = {name: getattr(inputs, name).to(index) for name in inputs._fields[1:4]}
    check(backend, inputs._replace(**indices))


def test_inputs_need_not_be_contiguous(backend, make):
    inputs = make()
    strided = {
        name: torch.stack((t, t), -1)[..., 0]
        for name, t in zip(inputs._fields[:4], inputs, strict=False)
    }
    check(backend, inputs._replace(**strided))


def test_only_the_first_row_of_an_interval_tells_its_cell(backend, make):
    inputs = make()
    out = backend.forward(inputs)
    others = torch.ones(inputs.x.shape[0], dtype=torch.bool, device=backend.device)
    others[inputs.interval_starts.long()] = False
    inputs.geometry[others] = 0
    assert torch.equal(backend.forward(inputs), out)


def test_rows_of_no_interval_count_for_nothing(backend, make):
    inputs = make()
    used = torch.zeros(inputs.x.shape[0], dtype=torch.bool)
    for start, length in zip(inputs.interval_starts, inputs.interval_lengths, strict=True):
        used[start : start + length] = True
    assert not used.all()
    inputs.x[~used.to(backend.device)] = torch.nan
    assert backend.forward(inputs).isfinite().all()
    (grad,) = backend.backward(torch.ones_like(grad_like(inputs)), inputs)
    assert torch.equal(grad.bool().any(1).cpu(), used)


def test_many_rows_of_one_cell_keep_their_sum_in_16_bits(backend, make):
    inputs = make(points=600, batch=1, depth=1, height=1, width=1, dtype=torch.bfloat16)
    inputs = inputs._replace(x=torch.ones_like(inputs.x))
    assert (backend.forward(inputs) == 600).all()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Triton runs on Linux")
def test_interpreted_kernels_follow_the_definition(run_interpreted, request):
    if request.config.getoption("--kernel-backend"):
        pytest.skip("this is that run")
    run_interpreted(Path(__file__))


@pytest.mark.skipif(library.library() is None, reason=str(library.why_not()))
def test_any_number_of_threads_gives_the_same_bits():
    inputs = BEV_POOL.make(points=20_000, height=40, width=40, channels=30)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = bev_pool(*inputs)
        for threads in (2, 3, 16):
            torch.set_num_threads(threads)
            assert torch.equal(bev_pool(*inputs), alone)
    finally:
        torch.set_num_threads(before)


MISTAKES = {
    "x must be (N, C), not (200, 12, 1)": lambda i: {"x": i.x[..., None]},
    "geometry must be (200, 4) to go with x (200, 12)": lambda i: {"geometry": i.geometry[:, :3]},
    "interval_lengths must be (": lambda i: {"interval_lengths": i.interval_lengths[1:]},
    "geometry must be one of int32, int64, not float32": lambda i: {"geometry": i.geometry.float()},
    "height must be an integer, not 5.0": lambda i: {"height": 5.0},
    "must not be negative: (2, 2, -1, 7)": lambda i: {"height": -1},
    "geometry is on meta, x on cpu": lambda i: {"geometry": i.geometry.to("meta")},
    "intervals must have a row or more, of the 200 rows of x": lambda i: {
        "interval_lengths": i.interval_lengths * 200
    },
    "interval_starts is not sorted": lambda i: {
        "interval_starts": i.interval_starts.flip(0),
        "interval_lengths": i.interval_lengths.clamp(max=1),
    },
    "geometry (h, w, z, b) must lie within (5, 7, 1, 2), not reach from": lambda i: {"depth": 1},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_gets_one_error_that_names_it(message):
    inputs = BEV_POOL.make()
    inputs = inputs._replace(**MISTAKES[message](inputs))
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        bev_pool(*inputs)
    assert message in str(caught.value)


def test_the_extension_has_the_names_and_shapes_of_bevfusion_s():
    inputs = BEV_POOL.make()
    x, *indices = inputs[:4]
    sizes = dict(zip("bdhw", inputs.grid, strict=True))
    names = ("geom_feats", "interval_lengths", "interval_starts")
    keywords = {**dict(zip(names, indices, strict=True)), **sizes}
    grad_out = grad_like(inputs)
    out, grad = expected(inputs, grad_out)
    close(bev_pool_ext.bev_pool_forward(x=x, **keywords), out)
    close(bev_pool_ext.bev_pool_backward(out_grad=grad_out, **keywords), grad)


def test_the_published_formulation_computes_the_same():
    shape = bench.Shape(300, (2, 1, 6, 7), channels=4)
    inputs = bench.make_inputs(shape, torch.float64, torch.device("cpu"))
    out = bev_pool(*inputs, *shape.grid)
    torch.testing.assert_close(bench.cumulative_sums(*inputs, *shape.grid), out)
