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


MISTAKES = [
    ({"offset": torch.zeros(2, 17, 7, 9)}, "must have a multiple of 18 channels"),
    ({"offset": torch.zeros(2, 0, 7, 9)}, "must have a multiple of 18 channels"),
    ({"offset": torch.zeros(18, 7, 9)}, "must have 4 dimensions"),
    ({"offset": torch.zeros(2, 18, 7, 8)}, r"offset must be \(2, 18, 7, 9\)"),
    ({"mask": torch.zeros(2, 9, 7, 8)}, r"mask must be \(2, 9, 7, 9\)"),
    ({"weight": torch.zeros(6, 3, 3, 3)}, "groups"),
    ({"stride": [0, 1]}, "stride must be 1 or more"),
]


@pytest.mark.parametrize("scripted", [False, True])
@pytest.mark.parametrize(("change", "message"), MISTAKES)
def test_a_mistake_is_a_runtime_error_as_in_torchvision(change, message, scripted):
    case = DEFORM_CONV.make()._replace(**change)
    function = torch.jit.script(face.deform_conv2d) if scripted else face.deform_conv2d
    with pytest.raises(
        (RuntimeError, torch.jit.Error) if scripted else RuntimeError, match=message
    ):
        called(function, case)


@pytest.mark.parametrize("options", OPTIONS)
def test_it_can_be_scripted(options):
    case = DEFORM_CONV.make(**OPTIONS[options], requires_grad=True)
    grad_out = grad_like(case)
    scripted = torch.jit.script(face.deform_conv2d)
    for one, other in zip(
        results(scripted, case, grad_out), results(face.deform_conv2d, case, grad_out), strict=True
    ):
        assert torch.equal(one, other)


def test_it_can_be_traced():
    case = DEFORM_CONV.make()
    arguments = (case.input, case.offset, case.weight, case.bias)

    def padded(*tensors):
        return face.deform_conv2d(*tensors, padding=(1, 1))

    traced = torch.jit.trace(padded, arguments)
    other = DEFORM_CONV.make()
    arguments = (other.input, other.offset, other.weight, other.bias)
    assert torch.equal(traced(*arguments), padded(*arguments))
