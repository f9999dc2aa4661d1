"""The functions of mmcv's compiled module, and mmcv's modulated_deform_conv2d."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import DEFORM_CONV, MS_DEFORM_ATTN
from kernel_checks import close, expected, grad_like
from turbo_physai.kernels.faces import mmcv, mmcv_ext

OPTIONS = {
    "plain": {},
    "no-bias": {"bias": False},
    "groups": {"groups": 2, "deform_groups": 4, "stride": (2, 1), "dilation": 2, "padding": 2},
}


def numbers(case):
    names = ("stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w")
    pairs = [number for pair in case[5:8] for number in pair]
    return {
        "kernel_h": 3,
        "kernel_w": 3,
        **dict(zip(names, pairs, strict=True)),
        "group": case.groups,
        "deformable_group": case.deform_groups,
        "with_bias": case.bias is not None,
    }


def scratch(case):
    """mmcv's bias (empty when there is none), `ones` and `columns`."""
    none = case.input.new_empty(0)
    return none if case.bias is None else case.bias, none.clone(), none.clone()


@pytest.mark.parametrize("options", OPTIONS)
def test_results_are_written_into_the_tensors_that_are_given(options):
    case = DEFORM_CONV.make(**OPTIONS[options])
    grad_out = grad_like(case)
    bias, ones, columns = scratch(case)
    out = torch.full_like(grad_out, float("nan"))
    mmcv_ext.modulated_deform_conv_forward(
        case.input, case.weight, bias, ones, case.offset, case.mask, out, columns, **numbers(case)
    )
    grads = [torch.zeros_like(t) for t in (case.input, case.weight, bias, case.offset, case.mask)]
    mmcv_ext.modulated_deform_conv_backward(
        case.input,
        case.weight,
        bias,
        ones,
        case.offset,
        case.mask,
        columns,
        *grads,
        grad_out,
        **numbers(case),
    )
    grad_input, grad_weight, grad_bias, grad_offset, grad_mask = grads
    actual = [out, grad_input, grad_offset, grad_mask, grad_weight]
    actual += [] if case.bias is None else [grad_bias]
    for one, wanted in zip(actual, expected(case, grad_out, "bias"), strict=True):
        close(one, wanted)


def test_gradients_of_input_weight_and_bias_are_added_to_as_mmcv_does():
    case = DEFORM_CONV.make()
    bias, ones, columns = scratch(case)
    inputs = (case.input, case.weight, bias, ones, case.offset, case.mask, columns)
    tensors = (case.input, case.weight, bias, case.offset, case.mask)
    grad_out = grad_like(case)
    from_zero, from_one = (
        [torch.zeros_like(t) for t in tensors],
        [torch.ones_like(t) for t in tensors],
    )
    for grads in (from_zero, from_one):
        mmcv_ext.modulated_deform_conv_backward(*inputs, *grads, grad_out, **numbers(case))
    for i, (zero, one) in enumerate(zip(from_zero, from_one, strict=True)):
        torch.testing.assert_close(one, zero + 1 if i < 3 else zero)


def test_every_argument_has_mmcv_s_name():
    case = DEFORM_CONV.make()
    bias, ones, columns = scratch(case)
    tensors = {
        "input": case.input,
        "weight": case.weight,
        "bias": bias,
        "ones": ones,
        "offset": case.offset,
        "mask": case.mask,
        "columns": columns,
    }
    out = torch.empty_like(grad_like(case))
    mmcv_ext.modulated_deform_conv_forward(**tensors, output=out, **numbers(case))
    grads = {
        f"grad_{name}": torch.zeros_like(tensors[name])
        for name in ("input", "weight", "bias", "offset", "mask")
    }
    mmcv_ext.modulated_deform_conv_backward(**tensors, **grads, grad_output=out, **numbers(case))
    assert all(grad.any() for grad in grads.values())


def test_another_kernel_than_that_of_the_weight_is_refused():
    case = DEFORM_CONV.make()
    bias, ones, columns = scratch(case)
    with pytest.raises(ValueError, match=r"weight \(6, 8, 3, 3\) is not one of a 1 x 3 kernel"):
        mmcv_ext.modulated_deform_conv_forward(
            case.input,
            case.weight,
            bias,
            ones,
            case.offset,
            case.mask,
            grad_like(case),
            columns,
            **{**numbers(case), "kernel_h": 1},
        )


def test_the_functions_of_ms_deform_attn_are_there_too():
    inputs = MS_DEFORM_ATTN.make()
    grad_out = torch.randn(2, 11, 24)
    out = mmcv_ext.ms_deform_attn_forward(*inputs, im2col_step=64)
    grads = [torch.zeros_like(inputs[i]) for i in (0, 3, 4)]
    mmcv_ext.ms_deform_attn_backward(*inputs, grad_out, *grads, im2col_step=64)
    for actual, one in zip((out, *grads), expected(inputs, grad_out), strict=True):
        torch.testing.assert_close(actual.double(), one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", OPTIONS)
def test_mmcv_s_function_takes_ten_positional_arguments(options):
    case = DEFORM_CONV.make(**OPTIONS[options], requires_grad=True)
    grad_out = grad_like(case)
    out = mmcv.modulated_deform_conv2d(*case)
    wanted = [tensor for tensor in case[:5] if tensor is not None]
    for actual, one in zip(
        (out, *torch.autograd.grad(out, wanted, grad_out)),
        expected(case, grad_out, "bias"),
        strict=True,
    ):
        close(actual, one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mmcv_s_function_computes_in_the_dtype_of_the_offset(dtype):
    case = DEFORM_CONV.make(requires_grad=True)
    case = case._replace(offset=case.offset.detach().to(dtype).requires_grad_())
    out = mmcv.modulated_deform_conv2d(*case)
    assert out.dtype == dtype
    for tensor, grad in zip(case[:5], torch.autograd.grad(out.sum(), case[:5]), strict=True):
        assert grad.dtype == tensor.dtype
