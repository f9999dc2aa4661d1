"""The names and contracts by which mmcv and BEVFormer call ms_deform_attn."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import MS_DEFORM_ATTN
from kernel_checks import expected
from turbo_physai.kernels import ms_deform_attn
from turbo_physai.kernels.faces import mmcv

FUNCTIONS = [
    mmcv.MultiScaleDeformableAttnFunction,
    mmcv.MultiScaleDeformableAttnFunction_fp32,
    mmcv.MultiScaleDeformableAttnFunction_fp16,
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_takes_six_positional_arguments(function):
    inputs = MS_DEFORM_ATTN.make(requires_grad=True)
    grad_out = torch.randn(2, 11, 24)
    out = function.apply(*inputs, 64)
    assert out.shape == (2, 11, 24)
    wanted = expected(inputs, grad_out)
    grads = torch.autograd.grad(out, [inputs[i] for i in (0, 3, 4)], grad_out)
    for actual, one in zip((out, *grads), wanted, strict=True):
        torch.testing.assert_close(actual.double(), one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_its_static_methods_serve_another_class(function):
    class Official(torch.autograd.Function):
        forward = staticmethod(function.forward)
        backward = staticmethod(function.backward)

    inputs = MS_DEFORM_ATTN.make(requires_grad=True)
    out = Official.apply(*inputs, 64)
    assert torch.equal(out, ms_deform_attn(*inputs))
    out.sum().backward()
    assert inputs[0].grad is not None
    assert inputs[3].grad is not None
    assert inputs[4].grad is not None


def test_backward_returns_six_values():
    class Context:
        saved_tensors = MS_DEFORM_ATTN.make()
        needs_input_grad = (True,) * 6

    grads = mmcv.MultiScaleDeformableAttnFunction_fp32.backward(Context, torch.ones(2, 11, 24))
    assert len(grads) == 6
    assert [grad is None for grad in grads] == [False, True, True, False, False, True]


@pytest.mark.parametrize(
    ("function", "dtype"),
    list(zip(FUNCTIONS, [torch.bfloat16, torch.float32, torch.float16], strict=True)),
)
def test_autocast_casts_as_the_name_says(function, dtype):
    inputs = MS_DEFORM_ATTN.make(dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = function.apply(*inputs, 64)
    assert out.dtype == dtype
    out.float().sum().backward()
    assert inputs[0].grad.dtype == torch.bfloat16
    assert function.apply(*inputs, 64).dtype == torch.bfloat16


def test_a_second_derivative_is_refused():
    inputs = MS_DEFORM_ATTN.make(requires_grad=True)
    out = mmcv.MultiScaleDeformableAttnFunction_fp32.apply(*inputs, 64)
    (grad,) = torch.autograd.grad(out.sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match="ms_deform_attn has a first derivative only"):
        grad.sum().backward()


@pytest.mark.parametrize("as_list", [False, True])
def test_the_cpu_formulation_needs_no_level_starts(as_list):
    value, shapes, _, locations, weights = inputs = MS_DEFORM_ATTN.make(requires_grad=True)
    given = [tuple(shape) for shape in shapes.tolist()] if as_list else shapes
    out = mmcv.multi_scale_deformable_attn_pytorch(value, given, locations, weights)
    assert torch.equal(out, ms_deform_attn(*inputs))
    out.sum().backward()
    assert value.grad is not None


def test_the_extension_writes_into_the_gradients_it_is_given():
    inputs = MS_DEFORM_ATTN.make()
    grad_out = torch.randn(2, 11, 24)
    out = mmcv.ms_deform_attn_forward(*inputs, im2col_step=64)
    grads = [torch.zeros_like(inputs[i]) for i in (0, 3, 4)]
    mmcv.ms_deform_attn_backward(*inputs, grad_out, *grads, im2col_step=64)
    for actual, one in zip((out, *grads), expected(inputs, grad_out), strict=True):
        torch.testing.assert_close(actual.double(), one, rtol=1e-4, atol=1e-4)


def test_the_extension_takes_mmcv_s_keywords():
    value, shapes, starts, locations, weights = MS_DEFORM_ATTN.make()
    out = mmcv.ms_deform_attn_forward(
        value=value,
        value_spatial_shapes=shapes,
        value_level_start_index=starts,
        sampling_locations=locations,
        attention_weights=weights,
        im2col_step=64,
    )
    assert out.shape == (2, 11, 24)


def test_any_batch_goes_with_any_im2col_step():
    inputs = MS_DEFORM_ATTN.make(batch=3)
    function = mmcv.MultiScaleDeformableAttnFunction_fp32
    assert torch.equal(function.apply(*inputs, 2), function.apply(*inputs, 64))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("offset_dtype", [torch.float32, torch.float16])
def test_the_deformable_convolution_s_function_has_the_operator_s_gradients(bias, offset_dtype):
    inputs = [
        torch.randn(2, 4, 6, 7, requires_grad=True),
        torch.randn(2, 2 * 2 * 9, 3, 4).to(offset_dtype).requires_grad_(),
        torch.rand(2, 2 * 9, 3, 4).to(offset_dtype).requires_grad_(),
        torch.randn(6, 2, 3, 3, requires_grad=True),
    ]
    if bias:
        inputs.append(torch.randn(6, requires_grad=True))
    given = inputs if bias else [*inputs, None]
    numbers = (2, 1, (1, 1), 2, 2)
    function = mmcv.ModulatedDeformConv2dFunction.apply(*given, *numbers)
    operator = mmcv.modulated_deform_conv2d(*given, *numbers)
    assert function.dtype == offset_dtype
    assert torch.equal(function, operator)
    grad = torch.randn_like(function)
    for mine, wanted, tensor in zip(
        torch.autograd.grad(function, inputs, grad),
        torch.autograd.grad(operator, inputs, grad),
        inputs,
        strict=True,
    ):
        assert mine.dtype == tensor.dtype
        torch.testing.assert_close(mine, wanted, rtol=2e-3, atol=2e-3)
