"""modulated_deform_conv2d follows its definition on every backend, output and gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from kernel_cases import DEFORM_CONV
from kernel_checks import FLOATS, INTERPRETED, close, differentiable, expected, grad_like
from kernel_checks import check as follows_definition
from turbo_physai.kernels import modulated_deform_conv2d
from turbo_physai.kernels.common.cpu import library
from turbo_physai.kernels.ops.modulated_deform_conv2d import _columns, _cpu

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
SMALL = {"kernel": 2}


@pytest.fixture
def make(backend):
    """Makes inputs on the backend's device."""
    return lambda **options: DEFORM_CONV.make(device=backend.device, **options)


@pytest.fixture
def check(backend):
    """Output and gradients follow the definition; Triton rounds samples to the input's dtype."""

    def check(inputs):
        rounded = backend.name == "triton" and inputs.input.itemsize == 2
        follows_definition(backend, inputs, sums=inputs.input.dtype if rounded else None)

    return check


def everything(backend, inputs, grad_out):
    grads = backend.backward(grad_out, inputs)
    return [backend.forward(inputs), *(grad for grad in grads if grad is not None)]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_output_and_gradients_follow_the_definition(make, check, geometry, channels_last):
    check(make(**GEOMETRIES[geometry], channels_last=channels_last))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 3, 4, 20, 31, 32, 33, 68, 129])
def test_any_number_of_channels(backend, make, check, channels, dtype):
    if dtype not in backend.floats:
        pytest.skip("not computed in")
    check(make(channels=(channels, 5), dtype=dtype, batch=1, **SMALL))


@pytest.mark.parametrize("channels", [(1, 1), (16, 16), (33, 40), (70, 130)])
def test_tiles_need_not_be_full(make, check, channels):
    check(make(channels=channels, batch=1, kernel=1, padding=0))


@pytest.mark.parametrize("given", ["neither", "mask", "bias"])
def test_mask_and_bias_may_be_missing(make, check, given):
    check(make(mask=given == "mask", bias=given == "bias", **SMALL))


@pytest.mark.parametrize(("dtype", "other"), list(itertools.product(FLOATS, FLOATS)), ids=str)
def test_dtypes_may_be_mixed(backend, make, check, dtype, other):
    if not {dtype, other} <= set(backend.floats):
        pytest.skip("not computed in")
    if INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("the interpreter multiplies the bits of bfloat16")
    check(make(dtype=dtype, other_dtype=other, **SMALL))


@pytest.mark.parametrize("reach", [0, 1, 40])
def test_inside_on_the_border_and_far_outside(make, check, reach):
    check(make(reach=reach, **SMALL))


@pytest.mark.parametrize("number", [torch.inf, -torch.inf, torch.nan, 1e30, -1e30])
def test_a_sample_that_is_nowhere_adds_nothing(backend, make, check, number):
    inputs = make(**SMALL)
    inputs.offset[:, ::3] = number  # y or x of most taps
    inputs.mask[:, 0] = torch.nan  # of a sample whose y is nowhere
    check(inputs)
    _, grad_offset, grad_mask, _ = backend.backward(grad_like(inputs), inputs)
    nowhere = [channel // 2 for channel in range(0, 8, 3)]
    assert not grad_mask[:, nowhere].any()
    assert not grad_offset.unflatten(1, (4, 2))[:, nowhere].any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_mask_that_is_not_finite_counts_where_the_sample_has_pixels(backend, make, bad):
    inputs = make(kernel=1, padding=0, size=(3, 3), channels=(4, 4), bias=False)
    inputs.input.abs_().add_(1)
    inputs.weight.abs_().add_(1)
    inputs.offset.fill_(0.25)  # the samples of the last row and column lie half outside
    inputs.offset[:, :, 0, 0] = -9  # and this one outside
    inputs.mask.fill_(bad)
    out, *_ = expected(inputs, grad_like(inputs))
    found = backend.forward(inputs).double()
    torch.testing.assert_close(found, out, equal_nan=True)
    assert not found[:, :, 0, 0].any()


@pytest.mark.parametrize("edge", ["top", "left", "bottom", "right"])
def test_a_sample_exactly_one_pixel_outside_has_no_gradient(backend, make, check, edge):
    inputs = make(kernel=1, padding=0)
    y, x = inputs.offset.unbind(1)
    height, width = inputs.input.shape[2:]
    lines, columns = (torch.arange(size, device=y.device) for size in (height, width))
    axis, base = (y, lines.view(-1, 1)) if edge in ("top", "bottom") else (x, columns)
    to = {"top": -1, "left": -1, "bottom": height, "right": width}[edge]
    axis.copy_((to - base).expand(axis.shape))
    check(inputs)
    assert not any(grad.any() for grad in backend.backward(grad_like(inputs), inputs))


def test_a_border_that_is_infinite_does_not_reach_samples_outside(backend, make):
    inputs = make(bias=False, **SMALL)
    inputs.input.fill_(torch.inf)
    inputs.offset.fill_(100.0)
    assert not backend.forward(inputs).any()


@pytest.mark.parametrize("channels_last", [False, True])
def test_inputs_need_not_be_contiguous(make, check, channels_last):
    inputs = make(channels_last=channels_last, **SMALL)
    strided = {
        name: torch.stack((t, t), -1).transpose(0, 1).contiguous().transpose(0, 1)[..., 0]
        for name, t in zip(inputs._fields[:4], inputs, strict=False)
    }
    assert not any(tensor.is_contiguous() for tensor in strided.values())
    check(inputs._replace(**strided))


def test_a_gradient_that_is_one_number_repeated_is_taken(backend, make):
    inputs = make(**SMALL)
    ones = torch.ones((), device=backend.device).expand(inputs.result().shape)
    for actual, one in zip(everything(backend, inputs, ones), expected(inputs, ones), strict=True):
        close(actual, one)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_memory_format_is_kept(backend, make, channels_last, dtype):
    inputs = make(channels_last=channels_last, dtype=dtype, **SMALL)
    wanted = torch.channels_last if channels_last else torch.contiguous_format
    assert backend.forward(inputs).is_contiguous(memory_format=wanted)
    grad_input, *_ = backend.backward(grad_like(inputs), inputs)
    assert grad_input.is_contiguous(memory_format=wanted)


@pytest.mark.parametrize(
    "wanted",
    list(itertools.product([True, False], repeat=4)),
    ids=lambda w: "".join(map(str, map(int, w))),
)
def test_a_gradient_that_is_not_wanted_changes_none_of_the_others(backend, make, wanted):
    inputs = make(**SMALL)
    grad_out = grad_like(inputs)
    for found, one, needed in zip(
        backend.backward(grad_out, inputs, wanted),
        backend.backward(grad_out, inputs),
        wanted,
        strict=True,
    ):
        if needed:
            torch.testing.assert_close(found, one, rtol=1e-5, atol=1e-5)


# Columns, in the backends that have them


@pytest.fixture
def columns_of(backend):
    if backend.name == "triton":
        pytest.skip("has no columns")
    return backend


@pytest.mark.parametrize("geometry", ["3x3", "both"])
@pytest.mark.parametrize("pixels", [1, 5, 64, 65])
@pytest.mark.usefixtures("columns_of")
def test_it_does_not_matter_how_many_pixels_are_taken_at_once(
    make, check, geometry, pixels, monkeypatch
):
    monkeypatch.setattr(_columns, "_BYTES_CPU", pixels * 9 * 8 * 4)
    check(make(size=(11, 13), **GEOMETRIES[geometry]))


def test_columns_are_held_for_a_part_of_the_image_only(columns_of, make, monkeypatch):
    monkeypatch.setattr(_columns, "_BYTES_CPU", 10_000)
    inputs, sizes = make(size=(20, 20)), []
    module = columns_of.module(inputs)

    class Recorded(module._Samples):
        def columns(self, first, out):
            sizes.append(out.nbytes)
            super().columns(first, out)

    monkeypatch.setattr(module, "_Samples", Recorded)
    module.forward(inputs)
    assert len(sizes) > 2
    assert max(sizes) <= 10_000


def test_an_image_with_its_channels_last_is_read_where_it_lies(monkeypatch):
    read = []

    class Recorded(_cpu._Samples):
        def __init__(self, image, *rest):
            read.append(image.data_ptr())
            super().__init__(image, *rest)

    monkeypatch.setattr(_cpu, "_Samples", Recorded)
    inputs = DEFORM_CONV.make(channels_last=True)
    _cpu.forward(inputs)
    _cpu.backward(grad_like(inputs), inputs)
    assert read == [image.data_ptr() for image in inputs.input] * 2


needs_library = pytest.mark.skipif(library.library() is None, reason=str(library.why_not()))


@needs_library
@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("geometry", ["3x3", "crossing"])
def test_columns_and_their_gradients_are_the_same_on_any_number_of_threads(geometry, threads):
    options = {"channels": (96, 6), **GEOMETRIES[geometry]}
    inputs = DEFORM_CONV.make(size=(20, 20), **options)
    samples, columns = samples_of(inputs)

    def run():
        out, inout = torch.empty_like(columns), columns.clone()
        grad_image = torch.zeros(20, 20, inputs.input.shape[1])
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


def samples_of(inputs):
    """The samples of the first image, and random gradients of 150 of its pixels' columns."""
    geometry, plane = inputs.geometry, inputs.offset.shape[2] * inputs.offset.shape[3]
    image = inputs.input[0].permute(1, 2, 0).contiguous()
    offset = inputs.offset[0].view(geometry.deform_groups, 9, 2, plane)
    mask = inputs.mask[0].view(geometry.deform_groups, 9, plane)
    columns = torch.randn(geometry.groups, 150, 9, inputs.weight.shape[1])
    return _cpu._Samples(image, offset, mask, geometry), columns


@needs_library
@pytest.mark.parametrize("isa", [BASELINE, AVX2, AVX512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [3, 44, 136])
def test_every_instruction_set_computes_the_same(isa, dtype, channels):
    inputs = DEFORM_CONV.make(channels=(channels, 4), dtype=dtype, requires_grad=True)
    grad_out = grad_like(inputs)
    try:
        if library.library().turbo_physai_limit_isa(isa) != isa:
            pytest.skip("this machine lacks it")
        out = modulated_deform_conv2d(*inputs)
        tensors = [getattr(inputs, name) for name in differentiable(inputs)]
        found = [out, *torch.autograd.grad(out, tensors, grad_out)]
    finally:
        library.library().turbo_physai_limit_isa(AVX512)
    for one, wanted in zip(found, expected(inputs, grad_out), strict=True):
        close(one, wanted, dtype)
