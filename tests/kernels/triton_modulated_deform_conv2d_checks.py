"""What the Triton kernels of modulated_deform_conv2d compute, against autograd in float64.

`test_modulated_deform_conv2d_triton.py` starts it (see `triton_checks`).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from deform_conv_case import Case, expected, make
from torch import Tensor
from triton_checks import DEVICE, poisoned
from turbo_physai.kernels.ops import modulated_deform_conv2d_triton as op

__all__ = ["poisoned"]

needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
GEOMETRIES: dict[str, dict[str, Any]] = {
    "3x3": {},
    "1x1": {"kernel": 1, "padding": 0},
    "2x3": {"kernel": (2, 3), "padding": (0, 1)},
    "stride": {"stride": (2, 1), "padding": (2, 0)},
    "dilation": {"dilation": 2, "padding": 2},
    "groups": {"groups": 2},
    "deform-groups": {"deform_groups": 2},
    "crossing": {"channels": (12, 4), "groups": 2, "deform_groups": 3},
    "depthwise": {"channels": (3, 3), "groups": 3},
}


def check(case: Case) -> None:
    """Output and gradients are the definition's, within the rounding of operands and results."""
    grad_out = case.grad_out()
    wanted = expected(case, grad_out)
    grads = op.backward(grad_out, *case.tensors[:4], case.geometry)
    actual = [op.forward(*case), *(grad for grad in grads if grad is not None)]
    like = [case.input, *(tensor for tensor in case.tensors[:4] if tensor is not None)]
    for one, other, tensor in zip(actual, wanted, like, strict=False):
        assert one.dtype == tensor.dtype
        assert one.shape == other.shape
        close(one, other, case.input.dtype)


def close(actual: Tensor, wanted: Tensor, operands: torch.dtype) -> None:
    eps = torch.finfo(actual.dtype).eps
    rounding = 3e-6 if operands == torch.float32 else 2 * torch.finfo(operands).eps
    largest = wanted.abs().max().item() if wanted.numel() else 0.0
    torch.testing.assert_close(
        actual.double(), wanted, rtol=2 * eps, atol=rounding * largest + 1e-7
    )


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_output_and_gradients_follow_the_definition(geometry: str) -> None:
    check(make(**GEOMETRIES[geometry], device=DEVICE))


@pytest.mark.parametrize("channels", [(1, 1), (16, 16), (33, 40), (70, 130)])
def test_tiles_need_not_be_full(channels: tuple[int, int]) -> None:
    check(make(channels=channels, batch=1, kernel=1, padding=0, device=DEVICE))


@pytest.mark.parametrize("given", ["neither", "mask", "bias"])
def test_mask_and_bias_may_be_missing(given: str) -> None:
    check(make(mask=given == "mask", bias=given == "bias", kernel=2, device=DEVICE))


# The interpreter multiplies the bits of bfloat16.
@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=needs_gpu)])
@pytest.mark.parametrize("offset", ["as input", "float32"])
def test_16_bits_go_with_offsets_of_any_dtype(dtype: torch.dtype, offset: str) -> None:
    check(
        make(dtype=dtype, other_dtype=torch.float32 if offset == "float32" else None, device=DEVICE)
    )


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_memory_format_is_kept(channels_last: bool, dtype: torch.dtype) -> None:
    case = make(channels_last=channels_last, dtype=dtype, device=DEVICE)
    wanted = torch.channels_last if channels_last else torch.contiguous_format
    assert op.forward(*case).is_contiguous(memory_format=wanted)
    grad_input, *_ = op.backward(case.grad_out(), *case.tensors[:4], case.geometry)
    assert grad_input.is_contiguous(memory_format=wanted)
    check(case)


@pytest.mark.parametrize("reach", [0, 1, 40])
def test_inside_on_the_border_and_far_outside(reach: int) -> None:
    check(make(reach=reach, kernel=2, device=DEVICE))


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan"), 1e30, -1e30])
def test_a_sample_that_is_nowhere_adds_nothing(number: float) -> None:
    case = make(kernel=2, device=DEVICE)
    case.offset[:, ::3] = number
    assert case.mask is not None
    case.mask[:, 0] = float("nan")
    check(case)
    _, grad_offset, grad_mask, _ = op.backward(case.grad_out(), *case.tensors[:4], case.geometry)
    nowhere = [channel // 2 for channel in range(0, 8, 3)]
    assert grad_mask is not None
    assert not grad_mask[:, nowhere].any()
    assert not grad_offset.unflatten(1, (4, 2))[:, nowhere].any()


@pytest.mark.parametrize("edge", [-1, 7])
def test_a_sample_exactly_one_pixel_outside_has_no_gradient(edge: int) -> None:
    case = make(kernel=1, padding=0, device=DEVICE)
    case.offset[:, 0] = edge - torch.arange(7.0, device=DEVICE)[:, None]
    check(case)
    grads = op.backward(case.grad_out(), *case.tensors[:4], case.geometry)
    assert not any(grad is not None and grad.any() for grad in grads)


def test_a_border_that_is_infinite_does_not_reach_samples_outside() -> None:
    case = make(bias=False, device=DEVICE)
    case.input.fill_(float("inf"))
    case.offset.fill_(100.0)
    assert not op.forward(*case).any()


def test_inputs_need_not_be_contiguous() -> None:
    case = make(kernel=2, device=DEVICE)
    names = ("input", "offset", "mask", "weight")
    strided = {
        name: torch.stack((t, t), -1).transpose(0, 1).contiguous().transpose(0, 1)[..., 0]
        for name, t in zip(names, case.tensors, strict=False)
        if t is not None
    }
    assert not any(tensor.is_contiguous() for tensor in strided.values())
    check(case._replace(**strided))


def test_a_dtype_that_is_not_computed_in_is_named() -> None:
    case = make(dtype=torch.float64, device=DEVICE)
    with pytest.raises(TypeError, match="float16, bfloat16, float32, not float64"):
        op.forward(*case)


@needs_gpu
def test_products_are_as_exact_as_those_of_torch() -> None:
    case = make(channels=(256, 128), device=DEVICE)
    wanted, *_ = expected(case, case.grad_out())
    exact = (op.forward(*case) - wanted).abs().max()
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        rough = (op.forward(*case) - wanted).abs().max()
    finally:
        torch.set_float32_matmul_precision(before)
    assert exact < 1e-5 * wanted.abs().max()
    assert exact < 0.1 * rough < 1e-3 * wanted.abs().max()


@needs_gpu
def test_a_cuda_graph_replays_on_new_inputs() -> None:
    case = make(device=DEVICE)
    op.forward(*case)  # compiles outside of the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = op.forward(*case)
    case.offset.copy_(make(device=DEVICE).offset)
    graph.replay()
    torch.testing.assert_close(out, op.forward(*case))
