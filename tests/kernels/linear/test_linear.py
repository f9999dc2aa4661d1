"""A linear layer gives what torch's gives, whichever library computes it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from turbo_physai.kernels import linear
from turbo_physai.kernels.common.cpu import matrix_product as _matrix_product
from turbo_physai.kernels.ops import linear as op


@pytest.fixture
def onednn(monkeypatch):
    """As on a machine where oneDNN is faster; counts the products that it makes."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(_matrix_product, "onednn_pays", lambda: True)
    made = []
    original = op.times_transposed

    def counted(*arguments):
        made.append(1)
        return original(*arguments)

    monkeypatch.setattr(op, "times_transposed", counted)
    return made


def inputs(*leading, channels=96, out=80, bias=True):
    made = [torch.randn(*leading, channels), torch.randn(out, channels)]
    if bias:
        made.append(torch.randn(out))
    return [t.requires_grad_() for t in made]


def compare(function, tensors, rtol=1e-5):
    """Forward and every gradient, against float64."""
    wide = [t.detach().double().requires_grad_() for t in tensors]
    out, expected = function(*tensors), F.linear(*wide)
    grad = torch.randn_like(out)
    results = [out, *torch.autograd.grad(out, tensors, grad)]
    wanted = [expected, *torch.autograd.grad(expected, wide, grad.double())]
    for result, exact in zip(results, wanted, strict=True):
        assert result.shape == exact.shape
        scale = float(exact.detach().abs().max())
        torch.testing.assert_close(result.double(), exact, rtol=rtol, atol=rtol * scale)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("leading", [(300,), (2, 150), (2, 3, 50)])
def test_forward_and_every_gradient_by_onednn(onednn, leading, bias):
    compare(linear, inputs(*leading, bias=bias))
    assert len(onednn) == 3


def test_many_rows(onednn):
    compare(linear, inputs(9000, channels=8, out=20), rtol=1e-4)
    assert len(onednn) == 2  # the gradient of the weight is left to torch


def test_inputs_may_lie_in_any_way(onednn):
    x = torch.randn(96, 300, 2).permute(2, 1, 0).requires_grad_()
    weight = torch.randn(96, 200)[:, ::2].t()[:80].requires_grad_()
    compare(linear, [x, weight])
    assert onednn


def test_only_the_gradients_that_are_needed_are_computed(onednn):
    x, weight, bias = inputs(300)
    linear(x.detach(), weight, bias.detach()).sum().backward()
    assert x.grad is None
    assert bias.grad is None
    assert len(onednn) == 2


def test_its_result_may_be_changed_in_place(onednn):
    compare(lambda *t: linear(*t).add_(0), inputs(2, 150))
    assert onednn


def test_a_second_derivative(onednn):
    tensors = inputs(300)
    results = []
    for function in (linear, F.linear):
        grads = torch.autograd.grad(function(*tensors).pow(3).sum(), tensors, create_graph=True)
        results.append(torch.autograd.grad(sum(g.sum() for g in grads), tensors))
    for mine, expected in zip(*results, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4 * expected.abs().max())
    assert onednn


LARGE = [torch.ones(300, 96), torch.ones(80, 96), torch.ones(80)]


@pytest.mark.parametrize(
    ("function", "tensors"),
    [
        pytest.param(linear, [torch.ones(3, 4), torch.ones(5, 4)], id="small"),
        pytest.param(linear, [t.double() for t in LARGE], id="float64"),
        pytest.param(linear, [t.bfloat16() for t in LARGE], id="bfloat16"),
        pytest.param(
            torch.vmap(linear, (0, None, None)), [torch.ones(7, 300, 96), *LARGE[1:]], id="vmap"
        ),
        pytest.param(lambda *t: torch.func.jvp(linear, t, t)[1], LARGE, id="jvp"),
        pytest.param(torch.compile(linear, backend="eager", fullgraph=True), LARGE, id="compiled"),
    ],
)
def test_what_onednn_is_not_asked_for(onednn, function, tensors):
    function(*tensors)
    assert not onednn


def test_autocast_casts_as_ever(onednn):
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(*inputs(300)).dtype == torch.bfloat16
    assert not onednn


def test_a_mistake_is_told_as_torch_tells_it(onednn):
    x, weight, _ = inputs(300)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        linear(x[:, 1:], weight)


def test_a_machine_where_mkl_is_as_fast_uses_it(onednn, monkeypatch):
    monkeypatch.setattr(_matrix_product, "onednn_pays", lambda: False)
    tensors = inputs(300)
    assert torch.equal(linear(*tensors), F.linear(*tensors))
    assert not onednn


def test_it_can_be_traced(onednn):
    tensors = inputs(300)
    traced = torch.jit.trace(linear, tensors, check_trace=False)
    assert not onednn
    others = inputs(300)
    torch.testing.assert_close(traced(*others), F.linear(*others))
