"""The operator as torch sees it: registered, differentiable, compilable, and clear about misuse."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from turbo_physai.kernels import modulated_deform_conv2d, modulated_deform_conv2d_backward
from turbo_physai.kernels.bench import modulated_deform_conv2d as bench


def gradients(function, case, grad_out):
    wanted = [tensor for tensor in case.tensors if tensor is not None]
    return torch.autograd.grad(function(*case.arguments()), wanted, grad_out)


OPTIONS = {
    "plain": {},
    "no-mask": {"mask": False},
    "no-bias": {"bias": False},
    "groups": {"groups": 2, "deform_groups": 4, "stride": 2},
    "channels-last": {"channels_last": True},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_autograd_follows_the_definition(deform_conv, options):
    case = deform_conv.make(**OPTIONS[options], requires_grad=True)
    grad_out = case.grad_out()
    out, *grads = deform_conv.expected(case, grad_out)
    deform_conv.close(modulated_deform_conv2d(*case.arguments()), out)
    for actual, one in zip(gradients(modulated_deform_conv2d, case, grad_out), grads, strict=True):
        deform_conv.close(actual, one)


def test_without_offsets_it_is_a_convolution(deform_conv):
    case = deform_conv.make(stride=(2, 1), dilation=2, groups=2, requires_grad=True)
    plain = case._replace(offset=torch.zeros_like(case.offset), mask=torch.ones_like(case.mask))
    out = modulated_deform_conv2d(*plain.arguments())
    same = F.conv2d(case.input, case.weight, case.bias, *case.geometry[:4])
    torch.testing.assert_close(out, same, rtol=1e-5, atol=1e-5)
    wanted = (case.input, case.weight, case.bias)
    grad_out = torch.randn_like(out)
    for one, other in zip(
        torch.autograd.grad(out, wanted, grad_out),
        torch.autograd.grad(same, wanted, grad_out),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_no_mask_is_a_mask_of_ones(deform_conv):
    case = deform_conv.make(mask=False)
    ones = case._replace(mask=torch.ones(2, 9, 7, 9))
    out = modulated_deform_conv2d(*case.arguments())
    assert torch.equal(out, modulated_deform_conv2d(*ones.arguments()))
    grads = [
        modulated_deform_conv2d_backward(torch.ones_like(out), *one.tensors[:4], padding=1)
        for one in (case, ones)
    ]
    assert grads[0][2] is None
    assert all(map(torch.equal, *([*g[:2], g[3]] for g in grads)))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck_finds_nothing(deform_conv, options, dtype):
    case = deform_conv.make(
        **OPTIONS[options], dtype=dtype, other_dtype=torch.float32, requires_grad=True
    )
    numbers = (*(list(pair) for pair in case.geometry[:3]), *case.geometry[3:])
    ops = torch.ops.turbo_physai
    torch.library.opcheck(ops.modulated_deform_conv2d.default, (*case.tensors, *numbers))
    detached = [None if t is None else t.detach() for t in case.tensors[:4]]
    torch.library.opcheck(
        ops.modulated_deform_conv2d_backward.default, (case.grad_out(), *detached, *numbers)
    )


@pytest.mark.parametrize("options", OPTIONS)
def test_it_compiles_without_a_graph_break(deform_conv, options):
    case = deform_conv.make(**OPTIONS[options], requires_grad=True)
    grad_out = case.grad_out()

    def layer(*arguments):
        return modulated_deform_conv2d(*arguments).relu() * 2

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    out = compiled(*case.arguments())
    torch.testing.assert_close(out, layer(*case.arguments()))
    assert out.stride() == layer(*case.arguments()).stride()
    for one, other in zip(
        gradients(compiled, case, grad_out), gradients(layer, case, grad_out), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_a_compiled_graph_serves_other_sizes(deform_conv):
    compiled = torch.compile(
        modulated_deform_conv2d, fullgraph=True, backend="aot_eager", dynamic=True
    )
    for size in ((5, 6), (8, 7), (9, 12)):
        case = deform_conv.make(size=size)
        torch.testing.assert_close(
            compiled(*case.arguments()), modulated_deform_conv2d(*case.arguments())
        )


def test_it_works_under_activation_checkpointing(deform_conv):
    case = deform_conv.make(requires_grad=True)
    grad_out = case.grad_out()

    def kept(*arguments):
        return checkpoint(modulated_deform_conv2d, *arguments, use_reentrant=False)

    for one, other in zip(
        gradients(kept, case, grad_out),
        gradients(modulated_deform_conv2d, case, grad_out),
        strict=True,
    ):
        assert torch.equal(one, other)


def test_a_second_derivative_is_refused(deform_conv):
    case = deform_conv.make(requires_grad=True)
    out = modulated_deform_conv2d(*case.arguments())
    (grad,) = torch.autograd.grad(out.sum(), case.input, create_graph=True)
    with pytest.raises(RuntimeError, match="modulated_deform_conv2d has a first derivative only"):
        grad.sum().backward()


@pytest.mark.parametrize("library", ["compiled", "torch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_autocast_casts_nothing(deform_conv, library, dtype, monkeypatch):
    if library == "torch":
        monkeypatch.setattr(
            "turbo_physai.kernels.ops.modulated_deform_conv2d.uses_cpu_library", lambda *_: False
        )
    case = deform_conv.make(dtype=dtype, other_dtype=torch.float32, requires_grad=True)
    outside = modulated_deform_conv2d(*case.arguments())
    with torch.autocast("cpu", torch.bfloat16):
        inside = modulated_deform_conv2d(*case.arguments())
        grads = gradients(modulated_deform_conv2d, case, torch.ones_like(inside))
    assert inside.dtype == dtype
    assert torch.equal(inside, outside)
    for grad, other, tensor in zip(
        grads,
        gradients(modulated_deform_conv2d, case, torch.ones_like(inside)),
        case.tensors,
        strict=True,
    ):
        assert grad.dtype == tensor.dtype
        assert torch.equal(grad, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_memory_format_is_kept(deform_conv, dtype):
    case = deform_conv.make(channels_last=True, dtype=dtype, requires_grad=True)
    out = modulated_deform_conv2d(*case.arguments())
    assert out.is_contiguous(memory_format=torch.channels_last)
    (grad, *_) = gradients(modulated_deform_conv2d, case, torch.randn_like(out))
    assert grad.is_contiguous(memory_format=torch.channels_last)
    usual = modulated_deform_conv2d(case.input.contiguous(), *case.arguments()[1:])
    assert usual.is_contiguous()
    torch.testing.assert_close(out, usual)


def test_an_image_with_its_channels_last_is_read_where_it_lies(deform_conv, monkeypatch):
    from turbo_physai.kernels.ops import modulated_deform_conv2d_cpu as backend

    read = []

    class Recorded(backend._Samples):
        def __init__(self, image, *rest):
            read.append(image.data_ptr())
            super().__init__(image, *rest)

    monkeypatch.setattr(backend, "_Samples", Recorded)
    case = deform_conv.make(channels_last=True)
    backend.forward(*case)
    backend.backward(case.grad_out(), *case.tensors[:4], case.geometry)
    assert read == [image.data_ptr() for image in case.input] * 2


@pytest.mark.parametrize("options", [{"batch": 0}, {"size": (0, 4), "padding": 2}])
def test_empty_inputs_give_the_bias_and_zero_gradients(deform_conv, options):
    case = deform_conv.make(**options, requires_grad=True)
    out = modulated_deform_conv2d(*case.arguments())
    assert torch.equal(out, case.bias.view(-1, 1, 1).expand_as(out))
    *grads, _ = gradients(modulated_deform_conv2d, case, torch.ones_like(out))
    assert not any(grad.any() for grad in grads)


def test_a_number_stands_for_both_directions(deform_conv):
    case = deform_conv.make(stride=2, padding=2, dilation=2)
    assert torch.equal(
        modulated_deform_conv2d(*case.tensors, 2, [2], (2, 2)),
        modulated_deform_conv2d(*case.arguments()),
    )


def replaced(name, change):
    return lambda case: case._replace(**{name: change(getattr(case, name))})


def geometry(**numbers):
    return lambda case: case._replace(geometry=case.geometry._replace(**numbers))


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
def test_a_mistake_gets_one_error_that_names_it(deform_conv, message):
    case = MISTAKES[message](deform_conv.make())
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        modulated_deform_conv2d(*case.arguments())
    assert message in str(caught.value)


def test_a_wrong_gradient_is_refused(deform_conv):
    case = deform_conv.make()
    with pytest.raises(ValueError, match=r"grad_out must be \(2, 6, 7, 9\), not \(2, 6, 7, 8\)"):
        modulated_deform_conv2d_backward(torch.ones(2, 6, 7, 8), *case.tensors[:4], padding=1)


def test_without_the_library_torch_computes_and_says_so_once():
    script = """if True:
        import warnings, torch
        from turbo_physai.kernels import modulated_deform_conv2d
        tensors = (torch.randn(1, 4, 5, 5), torch.randn(1, 18, 5, 5), torch.rand(1, 9, 5, 5),
                   torch.randn(3, 4, 3, 3))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            out = modulated_deform_conv2d(*tensors, padding=1)
            assert torch.equal(out, modulated_deform_conv2d(*tensors, padding=1))
        assert out.abs().sum() > 0
        assert len(caught) == 1, caught
        print(caught[0].message)
    """
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TURBO_PHYSAI_NO_CPU_LIBRARY": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert "modulated_deform_conv2d runs on PyTorch's own operators: switched off" in run.stdout


def test_the_benchmark_compares_the_operator_with_what_computes_the_same(deform_conv):
    case = deform_conv.make(requires_grad=True)
    grad_out = case.grad_out()
    functions = (bench.grid_sample_reference, bench.turbo_physai)
    results = [
        (out := function(*case.tensors), *torch.autograd.grad(out, case.tensors, grad_out))
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
