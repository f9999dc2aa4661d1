"""`linear_of_concatenation` is the linear layer of the concatenation, and never makes it."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear
from turbo_physai.kernels import linear_of_concatenation
from turbo_physai.kernels.bench.harness import peak_memory


def of_the_copy(first, second, weight, bias=None):
    return linear(torch.cat((first, second), -1), weight, bias)


@pytest.fixture
def tensors():
    shapes = ((2, 5, 6), (2, 5, 10), (7, 16), (7,))
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("with_bias", [True, False])
def test_output_and_every_gradient_are_those_of_the_concatenation(tensors, with_bias):
    given = tensors if with_bias else tensors[:3]
    actual, wanted = linear_of_concatenation(*given), of_the_copy(*given)
    torch.testing.assert_close(actual, wanted)
    grad = torch.randn_like(wanted)
    for one, other in zip(
        torch.autograd.grad(actual, given, grad),
        torch.autograd.grad(wanted, given, grad),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_it_compiles_without_a_graph_break(tensors):
    compiled = torch.compile(linear_of_concatenation, fullgraph=True, backend="aot_eager")
    out = compiled(*tensors)
    torch.testing.assert_close(out, of_the_copy(*tensors))
    (grad,) = torch.autograd.grad(out.sum(), tensors[2])
    (wanted,) = torch.autograd.grad(of_the_copy(*tensors).sum(), tensors[2])
    torch.testing.assert_close(grad, wanted)


def test_autocast_is_that_of_linear(tensors):
    given = [tensor.detach().float() for tensor in tensors]
    with torch.autocast("cpu", torch.bfloat16):
        actual, wanted = linear_of_concatenation(*given), of_the_copy(*given)
    assert actual.dtype == wanted.dtype == torch.bfloat16
    torch.testing.assert_close(actual, wanted, rtol=0.02, atol=0.05)


def test_no_copy_of_both_inputs_is_held():
    first, second = torch.randn(2, 4000, 64).unbind()
    weight, bias = torch.randn(4, 128), torch.randn(4)
    copy = 4000 * 128 * 4
    with torch.no_grad():
        fused = peak_memory(lambda: linear_of_concatenation(first, second, weight, bias), CPU)
        usual = peak_memory(lambda: of_the_copy(first, second, weight, bias), CPU)
    assert usual > copy
    assert fused < copy / 4


CPU = torch.device("cpu")


def test_shapes_that_do_not_fit_are_refused(tensors):
    first, second, weight, bias = tensors
    with pytest.raises(ValueError, match=r"last dimension only, not be \(2, 5, 6\) and \(5, 10\)"):
        linear_of_concatenation(first, second[0], weight, bias)
    with pytest.raises(ValueError, match=r"weight must be \(D, 6 \+ 6\), not \(7, 16\)"):
        linear_of_concatenation(first, first, weight, bias)
