"""What modulated_deform_conv2d has of its own: memory formats, a convolution's numbers, misuse."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from kernel_cases import DEFORM_CONV
from kernel_checks import close, expected, grad_like, gradients
from turbo_physai.kernels import modulated_deform_conv2d, modulated_deform_conv2d_backward
from turbo_physai.kernels.ops.modulated_deform_conv2d import bench

OPTIONS = {
    "no-mask": {"mask": False},
    "no-bias": {"bias": False},
    "groups": {"groups": 2, "deform_groups": 4, "stride": 2},
    "channels-last": {"channels_last": True},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_autograd_follows_the_definition(options):
    inputs = DEFORM_CONV.make(**OPTIONS[options], requires_grad=True)
    grad_out = grad_like(inputs)
    out, *grads = expected(inputs, grad_out, "bias")
    close(modulated_deform_conv2d(*inputs), out)
    for actual, one in zip(
        gradients(modulated_deform_conv2d, inputs, grad_out), grads, strict=True
    ):
        close(actual, one)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck_finds_nothing(options, dtype):
    inputs = DEFORM_CONV.make(
        **OPTIONS[options], dtype=dtype, other_dtype=torch.float32, requires_grad=True
    )
    torch.library.opcheck(torch.ops.turbo_physai.modulated_deform_conv2d.default, tuple(inputs))


@pytest.mark.parametrize("options", OPTIONS)
def test_the_gradients_compile(options):
    inputs = DEFORM_CONV.make(**OPTIONS[options], requires_grad=True)
    grad_out = grad_like(inputs)

    def layer(*arguments):
        return modulated_deform_conv2d(*arguments).relu() * 2

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert compiled(*inputs).stride() == layer(*inputs).stride()
    for one, other in zip(
        gradients(compiled, inputs, grad_out), gradients(layer, inputs, grad_out), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_a_compiled_graph_serves_other_sizes():
    compiled = torch.compile(
        modulated_deform_conv2d, fullgraph=True, backend="aot_eager", dynamic=True
    )
    for size in ((5, 6), (8, 7), (9, 12)):
        inputs = DEFORM_CONV.make(size=size)
        torch.testing.assert_close(compiled(*inputs), modulated_deform_conv2d(*inputs))


def test_without_offsets_it_is_a_convolution():
    case = DEFORM_CONV.make(stride=(2, 1), dilation=2, groups=2, requires_grad=True)
    plain = case._replace(offset=torch.zeros_like(case.offset), mask=torch.ones_like(case.mask))
    out = modulated_deform_conv2d(*plain)
    same = F.conv2d(case.input, case.weight, case.bias, *case[5:9])
    torch.testing.assert_close(out, same, rtol=1e-5, atol=1e-5)
    wanted = (case.input, case.weight, case.bias)
    grad_out = torch.randn_like(out)
    for one, other in zip(
        torch.autograd.grad(out, wanted, grad_out),
        torch.autograd.grad(same, wanted, grad_out),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_no_mask_is_a_mask_of_ones():
    case = DEFORM_CONV.make(mask=False)
    ones = case._replace(mask=torch.ones(2, 9, 7, 9))
    out = modulated_deform_conv2d(*case)
    assert torch.equal(out, modulated_deform_conv2d(*ones))
    grads = [
        modulated_deform_conv2d_backward(torch.ones_like(out), *one[:4], padding=1)
        for one in (case, ones)
    ]
    assert grads[0][2] is None
    assert all(map(torch.equal, *([*g[:2], g[3]] for g in grads)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_memory_format_is_kept(dtype):
    case = DEFORM_CONV.make(channels_last=True, dtype=dtype, requires_grad=True)
    out = modulated_deform_conv2d(*case)
    assert out.is_contiguous(memory_format=torch.channels_last)
    (grad, *_) = gradients(modulated_deform_conv2d, case, torch.randn_like(out))
    assert grad.is_contiguous(memory_format=torch.channels_last)
    usual = modulated_deform_conv2d(case.input.contiguous(), *case[1:])
    assert usual.is_contiguous()
    torch.testing.assert_close(out, usual)


@pytest.mark.parametrize("options", [{"batch": 0}, {"size": (0, 4), "padding": 2}])
def test_empty_inputs_give_the_bias_and_zero_gradients(options):
    case = DEFORM_CONV.make(**options, requires_grad=True)
    out = modulated_deform_conv2d(*case)
    assert torch.equal(out, case.bias.view(-1, 1, 1).expand_as(out))
    *grads, _ = gradients(modulated_deform_conv2d, case, torch.ones_like(out))
    assert not any(grad.any() for grad in grads)


def test_a_number_stands_for_both_directions():
    case = DEFORM_CONV.make(stride=2, padding=2, dilation=2)
    assert torch.equal(
        modulated_deform_conv2d(*case[:5], 2, [2], (2, 2)),
        modulated_deform_conv2d(*case),
    )


def replaced(name, change):
    return lambda case: case._replace(**{name: change(getattr(case, name))})


def geometry(**numbers):
    return lambda case: case._replace(**numbers)


MISTAKES = {
    "input must be (N, C, H, W), not (8, 7, 9)": replaced("input", lambda t: t[0]),
    "weight must be (O, C / groups, kh, kw), not (6, 8, 3)": replaced(
        "weight", lambda t: t[..., 0]
    ),
    "offset must be (2, 18, 7, 9) to go with input (2, 8, 7, 9) and weight (6, 8, 3, 3), not "
    "(2, 17, 7, 9)": replaced("offset", lambda t: t[:, 1:]),
    "mask must be (2, 9, 7, 9) to go with input (2, 8, 7, 9) and weight (6, 8, 3, 3), not "
    "(2, 9, 7, 8)": replaced("mask", lambda t: t[..., 1:]),
    "bias must be (6,)": replaced("bias", lambda t: t[1:]),
    "mask must be one of float16, bfloat16, float32, float64, not bool": replaced(
        "mask", lambda t: t > 0
    ),
    "offset is on meta, input on cpu": replaced("offset", lambda t: t.to("meta")),
    "stride must be 1 or more, not (0, 1)": geometry(stride=(0, 1)),
    "padding must be 0 or more, not (1, -1)": geometry(padding=(1, -1)),
    "dilation must be 1 or more, not (0, 1)": geometry(dilation=(0, 1)),
    "stride must be one number or two, not (1, 1, 1)": geometry(stride=(1, 1, 1)),
    "groups (4) must divide weight's 6 out channels": geometry(groups=4),
    "8 channels times groups be input's 8": geometry(groups=2),
    "deform_groups (3) must divide input's 8 channels": geometry(deform_groups=3),
    "offset must be (2, 36, 7, 9)": geometry(deform_groups=2),
    "is too small for weight (6, 8, 3, 3) with padding (1, 1) and dilation (9, 9)": geometry(
        dilation=(9, 9)
    ),
    "must have channels and taps": replaced("input", lambda t: t[:, :0]),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_gets_one_error_that_names_it(message):
    case = MISTAKES[message](DEFORM_CONV.make())
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        modulated_deform_conv2d(*case)
    assert message in str(caught.value)


def test_the_benchmark_compares_the_operator_with_what_computes_the_same():
    case = DEFORM_CONV.make(requires_grad=True)
    grad_out = grad_like(case)
    functions = (bench.grid_sample_reference, bench.turbo_physai)
    results = [
        (out := function(*case[:5]), *torch.autograd.grad(out, case[:5], grad_out))
        for function in functions
    ]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_the_benchmark_times_forward_and_backward(monkeypatch):
    monkeypatch.setattr(bench, "SHAPES", {"small": bench.Shape(1, 8, 5, 6)})
    cases = list(bench.cases(["small"], torch.float32, torch.device("cpu")))
    assert [case.direction for case in cases] == ["forward", "forward+backward"]
    for case in cases:
        assert list(case.steps)[:2] == ["grid_sample", "turbo_physai"]
        for step in case.steps.values():
            step()
