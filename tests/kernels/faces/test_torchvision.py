"""The name and contract by which torchvision's users call modulated_deform_conv2d."""

from __future__ import annotations

import inspect

import pytest
import torch
from kernel_cases import DEFORM_CONV
from kernel_checks import close, expected, grad_like
from turbo_physai.kernels.faces import torchvision as face

OPTIONS = {
    "plain": {},
    "no-mask": {"mask": False},
    "no-bias": {"bias": False},
    "pairs": {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)},
    "groups": {"groups": 2, "deform_groups": 4},
    "channels-last": {"channels_last": True},
    "float64": {"dtype": torch.float64},
}


def called(function, case):
    return function(case.input, case.offset, case.weight, case.bias, *case[5:8], mask=case.mask)


def results(function, case, grad_out):
    out = called(function, case)
    wanted = [tensor for tensor in case[:5] if tensor is not None]
    return [out, *torch.autograd.grad(out, wanted, grad_out)]


@pytest.mark.parametrize("options", OPTIONS)
def test_groups_follow_from_the_shapes(options):
    case = DEFORM_CONV.make(**OPTIONS[options], requires_grad=True)
    grad_out = grad_like(case)
    for actual, one in zip(
        results(face.deform_conv2d, case, grad_out),
        expected(case, grad_out, "bias"),
        strict=True,
    ):
        close(actual, one)


@pytest.mark.parametrize("options", OPTIONS)
def test_torchvision_computes_the_same(options):
    theirs = pytest.importorskip("torchvision.ops", exc_type=Exception).deform_conv2d
    case = DEFORM_CONV.make(**OPTIONS[options], requires_grad=True)
    grad_out = grad_like(case)
    for one, other in zip(
        results(face.deform_conv2d, case, grad_out), results(theirs, case, grad_out), strict=True
    ):
        close(one, other.double())


def test_on_whole_pixels_slopes_are_torchvision_s_but_for_those_just_outside():
    theirs = pytest.importorskip("torchvision.ops", exc_type=Exception).deform_conv2d
    for padding, outside in ((0, False), (1, True)):
        case = DEFORM_CONV.make(padding=padding, requires_grad=True)
        case = case._replace(offset=torch.zeros_like(case.offset).requires_grad_())
        grad_out = grad_like(case)
        ours, given = (
            results(function, case, grad_out)[2] for function in (face.deform_conv2d, theirs)
        )
        differ = ~torch.isclose(ours, given, rtol=1e-4, atol=1e-4)
        assert not ours[differ].any()
        assert differ.any() == outside
        assert not differ[:, :, 1:, 1:].any()


def test_the_signature_is_torchvision_s():
    theirs = pytest.importorskip("torchvision.ops", exc_type=Exception).deform_conv2d
    ours, given = (
        inspect.signature(function).parameters for function in (face.deform_conv2d, theirs)
    )
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in given.values()
    ]


def test_defaults_are_those_of_a_convolution():
    case = DEFORM_CONV.make(padding=0, mask=False, bias=False)
    out = face.deform_conv2d(case.input, case.offset, case.weight)
    assert torch.equal(out, called(face.deform_conv2d, case))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offset": torch.zeros(2, 17, 7, 9)}, "must have a multiple of 18 channels"),
        ({"offset": torch.zeros(2, 0, 7, 9)}, "must have a multiple of 18 channels"),
        ({"offset": torch.zeros(18, 7, 9)}, "must have 4 dimensions"),
    ],
)
def test_an_offset_that_fits_no_groups_is_refused(change, message):
    case = DEFORM_CONV.make()._replace(**change)
    with pytest.raises(ValueError, match=message):
        called(face.deform_conv2d, case)
