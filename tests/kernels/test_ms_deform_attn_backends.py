"""What the C++ kernel and the torch formulation compute, against autograd in float64."""

from __future__ import annotations

import itertools
from types import ModuleType

import pytest
import torch
from turbo_physai.kernels import _cpu_library
from turbo_physai.kernels.ops import ms_deform_attn_cpu, ms_deform_attn_torch

FOUR = ((6, 9), (3, 5), (2, 2), (1, 3))
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture(params=[ms_deform_attn_cpu, ms_deform_attn_torch], ids=["cpu", "torch"])
def backend(request) -> ModuleType:
    if request.param is ms_deform_attn_cpu and _cpu_library.library() is None:
        pytest.skip(str(_cpu_library.why_not()))
    return request.param


@pytest.fixture(autouse=True)
def _poison():
    """Every torch.empty comes full of NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def close(actual, wanted, dtype=torch.float32):
    """Equal but for the rounding of the result to its dtype and of the sums to theirs."""
    sums = 1e-12 if dtype == torch.float64 else 3e-6
    info = torch.finfo(actual.dtype)
    atol = sums * max(1.0, wanted.abs().max().item()) + info.smallest_normal * info.eps
    torch.testing.assert_close(actual.double(), wanted, rtol=info.eps, atol=atol)


def check(backend, expected, inputs, dtype=torch.float32):
    grad_out = torch.randn(*inputs[3].shape[:2], inputs[0].shape[2] * inputs[0].shape[3])
    grad_out = grad_out.to(inputs[0].dtype)
    out, *grads = expected(inputs, grad_out)
    result = backend.forward(*inputs)
    assert result.dtype == inputs[0].dtype
    close(result, out, dtype)
    for actual, wanted, like in zip(
        backend.backward(grad_out, *inputs), grads, (inputs[0], *inputs[3:]), strict=True
    ):
        assert (actual.dtype, actual.shape) == (like.dtype, like.shape)
        close(actual, wanted, dtype)


@pytest.mark.parametrize("levels", [((6, 9),), FOUR], ids=["one level", "four levels"])
@pytest.mark.parametrize("batch", [1, 3])
def test_output_and_gradients_follow_the_definition(backend, make, expected, levels, batch):
    check(backend, expected, make(levels=levels, batch=batch))


@pytest.mark.parametrize("dim", [4, 8, 12, 16, 20, 24, 28, 32, 36, 48, 60, 64, 100, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_multiple_of_four_is_a_head_dimension(backend, make, expected, dim, dtype):
    check(backend, expected, make(dim=dim, queries=5, dtype=dtype), dtype)


@pytest.mark.parametrize("points", [1, 8, 50, 130])
def test_any_number_of_points(backend, make, expected, points):
    check(backend, expected, make(points=points, queries=3))


@pytest.mark.parametrize(("dtype", "location_dtype"), list(itertools.product(FLOATS, FLOATS)))
def test_dtypes_may_be_mixed(backend, make, expected, dtype, location_dtype):
    inputs = make(dtype=dtype, location_dtype=location_dtype)
    wide = torch.float64 in (dtype, location_dtype)
    check(backend, expected, inputs, torch.float64 if wide else torch.float32)


def test_inputs_need_not_be_contiguous(backend, make, expected):
    inputs = make()
    strided = [
        torch.stack((t, t), -1).transpose(0, 1).contiguous().transpose(0, 1)[..., 0]
        for t in inputs[:2] + inputs[3:]
    ]
    strided.insert(2, inputs[2].repeat_interleave(2)[::2])
    assert not any(t.is_contiguous() for t in strided)
    check(backend, expected, type(inputs)(*strided))


def test_levels_may_leave_gaps_and_lie_in_any_order(backend, make, expected):
    inputs = make(levels=((6, 9), (3, 5)))
    value = torch.randn(2, 100, 3, 8)
    check(backend, expected, inputs._replace(value=value, level_start_index=torch.tensor([20, 3])))


def test_levels_may_overlap(backend, make, expected):
    starts = torch.tensor([0, 5, 2, 1])
    check(backend, expected, make(levels=FOUR)._replace(level_start_index=starts))


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan, 1e30, -1e30])
def test_a_location_off_the_map_gives_zero_and_gets_zero_gradients(backend, make, expected, bad):
    inputs = make()
    locations, weights = inputs.sampling_locations, inputs.attention_weights
    locations[:, ::2, :, :, 1, 0] = bad
    locations[:, :, 1, :, 2, 1] = bad
    off = (locations == bad).any(-1) | locations.isnan().any(-1)
    grad_out = torch.randn(2, 11, 24)
    out, grad_value, _, _ = expected(
        inputs._replace(sampling_locations=locations.where(~off[..., None], -5.0)), grad_out
    )
    weights[off] = torch.nan  # a weight that must not matter
    close(backend.forward(*inputs), out)
    grads = backend.backward(grad_out, *inputs)
    close(grads[0], grad_value)
    assert not grads[1][off].any()
    assert not grads[2][off].any()
    assert all(grad.isfinite().all() for grad in grads)


def test_an_infinite_pixel_is_not_seen_from_outside(backend, make):
    inputs = make(batch=1, queries=1, heads=1, points=1, levels=((2, 2),))
    inputs.value[0, 1] = torch.inf  # the pixel (0, 1), to the right of the sample's only neighbour
    inputs.sampling_locations[:] = torch.tensor([-0.1, -0.1])
    assert backend.forward(*inputs).isfinite().all()
    assert all(g.isfinite().all() for g in backend.backward(torch.ones(1, 1, 8), *inputs))


def test_a_location_on_a_pixel_reads_that_pixel(backend, make):
    inputs = make(batch=1, queries=1, heads=1, points=1, levels=((3, 4),))
    inputs.sampling_locations[:] = torch.tensor([(2 + 0.5) / 4, (1 + 0.5) / 3])
    inputs.attention_weights[:] = 1
    torch.testing.assert_close(backend.forward(*inputs)[0, 0], inputs.value[0, 1 * 4 + 2, 0])
