"""What the C++ columns and the torch formulation compute, against autograd in float64."""

from __future__ import annotations

import itertools
from types import ModuleType

import pytest
import torch
from turbo_physai.kernels import _cpu_library
from turbo_physai.kernels.ops import (
    _deform_conv_columns,
    modulated_deform_conv2d_cpu,
    modulated_deform_conv2d_torch,
)

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
BASELINE, AVX2, AVX512 = 0, 1, 2
GEOMETRIES = {
    "3x3": {},
    "1x1": {"kernel": 1, "padding": 0},
    "2x3": {"kernel": (2, 3), "padding": (0, 1)},
    "stride": {"stride": 2},
    "stride-pair": {"stride": (2, 1), "padding": (2, 0)},
    "dilation": {"dilation": 2, "padding": 2},
    "groups": {"groups": 2},
    "deform-groups": {"deform_groups": 2},
    "both": {"groups": 2, "deform_groups": 4},
    "crossing": {"channels": (12, 4), "groups": 2, "deform_groups": 3},
    "depthwise": {"channels": (6, 6), "groups": 6, "deform_groups": 2},
    "all": {"stride": 2, "dilation": (2, 1), "padding": 2, "groups": 2, "deform_groups": 2},
    "one-image": {"batch": 1, "size": (1, 5)},
}


@pytest.fixture(params=[modulated_deform_conv2d_cpu, modulated_deform_conv2d_torch])
def backend(request) -> ModuleType:
    if request.param is modulated_deform_conv2d_cpu and _cpu_library.library() is None:
        pytest.skip(str(_cpu_library.why_not()))
    return request.param


@pytest.fixture(autouse=True)
def _poison():
    """Every torch.empty comes full of NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def everything(backend, case, grad_out):
    grads = backend.backward(grad_out, *case.tensors[:4], case.geometry)
    return [backend.forward(*case), *(grad for grad in grads if grad is not None)]


def check(deform_conv, backend, case, sums=torch.float32):
    grad_out = case.grad_out()
    tensors = [tensor for tensor in case.tensors[:4] if tensor is not None]
    wanted = deform_conv.expected(case, grad_out)
    for actual, one, like in zip(
        everything(backend, case, grad_out), wanted, [case.input, *tensors], strict=False
    ):
        assert actual.dtype == like.dtype
        assert actual.shape == one.shape
        deform_conv.close(actual, one, sums)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_output_and_gradients_follow_the_definition(deform_conv, backend, geometry, channels_last):
    case = deform_conv.make(**GEOMETRIES[geometry], channels_last=channels_last)
    check(deform_conv, backend, case)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 3, 4, 20, 31, 32, 33, 68, 129])
def test_any_number_of_channels(deform_conv, backend, channels, dtype):
    case = deform_conv.make(channels=(channels, 5), dtype=dtype, batch=1)
    check(deform_conv, backend, case, dtype)


@pytest.mark.parametrize("given", ["neither", "mask", "bias"])
def test_mask_and_bias_may_be_missing(deform_conv, backend, given):
    case = deform_conv.make(mask=given == "mask", bias=given == "bias")
    check(deform_conv, backend, case)


@pytest.mark.parametrize(("dtype", "other"), list(itertools.product(FLOATS, FLOATS)))
def test_dtypes_may_be_mixed(deform_conv, backend, dtype, other):
    wide = torch.float64 in (dtype, other)
    case = deform_conv.make(dtype=dtype, other_dtype=other)
    check(deform_conv, backend, case, torch.float64 if wide else torch.float32)


@pytest.mark.parametrize("reach", [0, 1, 40])
def test_inside_on_the_border_and_far_outside(deform_conv, backend, reach):
    check(deform_conv, backend, deform_conv.make(reach=reach))


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan"), 1e30, -1e30])
def test_a_sample_that_is_nowhere_adds_nothing(deform_conv, backend, number):
    case = deform_conv.make()
    case.offset[:, ::3] = number  # y or x of most taps
    case.mask[:, 0] = float("nan")  # of a sample whose y is nowhere
    check(deform_conv, backend, case)
    _, grad_offset, grad_mask, _ = backend.backward(
        case.grad_out(), *case.tensors[:4], case.geometry
    )
    nowhere = [channel // 2 for channel in range(0, 18, 3)]
    assert not grad_mask[:, nowhere].any()
    assert not grad_offset.unflatten(1, (9, 2))[:, nowhere].any()


@pytest.mark.parametrize("edge", ["top", "left", "bottom", "right"])
def test_a_sample_exactly_one_pixel_outside_has_no_gradient(deform_conv, backend, edge):
    case = deform_conv.make(kernel=1, padding=0)
    y, x = case.offset.unbind(1)
    height, width = case.input.shape[2:]
    lines, columns = torch.arange(height).view(-1, 1), torch.arange(width)
    axis, base = (y, lines) if edge in ("top", "bottom") else (x, columns)
    to = {"top": -1, "left": -1, "bottom": height, "right": width}[edge]
    axis.copy_((to - base).expand(axis.shape))
    check(deform_conv, backend, case)
    grads = backend.backward(case.grad_out(), *case.tensors[:4], case.geometry)
    assert not any(grad.any() for grad in grads)


def test_a_border_that_is_infinite_does_not_reach_samples_outside(deform_conv, backend):
    case = deform_conv.make(bias=False)
    case.input.fill_(float("inf"))
    case.offset.fill_(100.0)
    assert not backend.forward(*case).any()


@pytest.mark.parametrize("channels_last", [False, True])
def test_inputs_need_not_be_contiguous(deform_conv, backend, channels_last):
    case = deform_conv.make(channels_last=channels_last)
    strided = [
        torch.stack((t, t), -1).transpose(0, 1).contiguous().transpose(0, 1)[..., 0]
        for t in case.tensors[:4]
    ]
    assert not any(tensor.is_contiguous() for tensor in strided)
    case = case._replace(**dict(zip(("input", "offset", "mask", "weight"), strided, strict=True)))
    check(deform_conv, backend, case)


def test_a_gradient_that_is_one_number_repeated_is_taken(deform_conv, backend):
    case = deform_conv.make()
    ones = torch.ones(()).expand(2, 6, 7, 9)
    for actual, one in zip(
        everything(backend, case, ones), deform_conv.expected(case, ones), strict=False
    ):
        deform_conv.close(actual, one)


@pytest.mark.parametrize("geometry", ["3x3", "both"])
@pytest.mark.parametrize("pixels", [1, 5, 64, 65])
def test_it_does_not_matter_how_many_pixels_are_taken_at_once(
    deform_conv, backend, geometry, pixels, monkeypatch
):
    case = deform_conv.make(size=(11, 13), **GEOMETRIES[geometry])
    monkeypatch.setattr(_deform_conv_columns, "_BYTES_CPU", pixels * 9 * 8 * 4)
    check(deform_conv, backend, case)


def test_columns_are_held_for_a_part_of_the_image_only(deform_conv, backend, monkeypatch):
    monkeypatch.setattr(_deform_conv_columns, "_BYTES_CPU", 10_000)
    sizes = []

    class Recorded(backend._Samples):
        def columns(self, first, out):
            sizes.append(out.nbytes)
            super().columns(first, out)

    monkeypatch.setattr(backend, "_Samples", Recorded)
    backend.forward(*deform_conv.make(size=(20, 20)))
    assert len(sizes) > 2
    assert max(sizes) <= 10_000


needs_library = pytest.mark.skipif(
    _cpu_library.library() is None, reason=str(_cpu_library.why_not())
)


@needs_library
@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("geometry", ["3x3", "crossing"])
def test_columns_and_their_gradients_are_the_same_on_any_number_of_threads(
    deform_conv, geometry, threads
):
    options = {"channels": (96, 6), **GEOMETRIES[geometry]}
    case = deform_conv.make(size=(20, 20), **options)
    samples, columns = samples_of(case)

    def run():
        out, inout = torch.empty_like(columns), columns.clone()
        grad_image = torch.zeros(20, 20, case.input.shape[1])
        samples.columns(7, out)
        return out, samples.backward(7, inout, grad_image), inout, grad_image

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = run()
        torch.set_num_threads(threads)
        for _ in range(3):
            assert all(map(torch.equal, run(), alone))
    finally:
        torch.set_num_threads(before)


def samples_of(case):
    """The samples of a case's first image, and random gradients of 150 of its pixels' columns."""
    geometry, plane = case.geometry, case.offset.shape[2] * case.offset.shape[3]
    image = case.input[0].permute(1, 2, 0).contiguous()
    offset = case.offset[0].view(geometry.deform_groups, 9, 2, plane)
    mask = case.mask[0].view(geometry.deform_groups, 9, plane)
    samples = modulated_deform_conv2d_cpu._Samples(
        image, offset, mask, (3, 3), case.offset.shape[3], geometry
    )
    return samples, torch.randn(geometry.groups, 150, 9, case.weight.shape[1])


@pytest.fixture
def _widest_afterwards():
    yield
    _cpu_library.library().turbo_physai_limit_isa(AVX512)


@needs_library
@pytest.mark.usefixtures("_widest_afterwards")
@pytest.mark.parametrize("isa", [BASELINE, AVX2, AVX512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [3, 44, 136])
def test_every_instruction_set_computes_the_same(deform_conv, isa, dtype, channels):
    if _cpu_library.library().turbo_physai_limit_isa(isa) != isa:
        pytest.skip("this machine lacks it")
    case = deform_conv.make(channels=(channels, 4), dtype=dtype)
    check(deform_conv, modulated_deform_conv2d_cpu, case, dtype)
