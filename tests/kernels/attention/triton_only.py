"""What the Triton kernels alone have: deterministic sums, CUDA graphs, measured sizes.

`test_triton.py` starts it, because Triton decides when it is imported whether it interprets.
"""

from __future__ import annotations

import pytest
import torch
from kernel_cases import FOUR, MS_DEFORM_ATTN, Operator
from kernel_checks import check, grad_like

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
FEW = {"batch": 1, "queries": 5, "heads": 1, "points": 2}


@pytest.fixture
def make(attention: Operator, backend):
    return lambda **options: attention.make(device=backend.device, **{**FEW, **options})


@pytest.mark.parametrize("levels", [((5, 7),), FOUR], ids=["one level", "four levels"])
@pytest.mark.parametrize("dim", [4, 8, 32, 256])
def test_deterministic_sums_follow_the_definition(backend, make, levels, dim):
    check(backend, make(levels=levels, dim=dim, batch=2, queries=3), deterministic=True)


def test_deterministic_sums_of_16_bit_values(backend, make):
    inputs = make(dtype=torch.bfloat16, other_dtype=torch.float32)
    check(backend, inputs, deterministic=True)


@pytest.mark.parametrize("empty", ["batch", "queries", "points"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_nothing_to_do(backend, make, empty, deterministic):
    check(backend, make(**{empty: 0}), deterministic=deterministic)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e15])
def test_deterministic_sums_hold_at_any_scale(backend, make, scale):
    inputs = make(queries=20, levels=((2, 2),))
    grad_out = grad_like(inputs) * scale
    plain, *_ = backend.backward(grad_out, inputs)
    actual, *_ = backend.backward(grad_out, inputs, deterministic=True)
    torch.testing.assert_close(actual / scale, plain / scale, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_a_gradient_that_is_not_finite_stays_visible_when_deterministic(backend, make, bad):
    inputs = make()
    grad_out = torch.ones_like(grad_like(inputs))
    grad_out[0, 0, 0] = bad
    grad_value, *_ = backend.backward(grad_out, inputs, deterministic=True)
    assert not grad_value.isfinite().any()


def test_deterministic_sums_do_not_depend_on_the_order_of_queries(backend):
    inputs = MS_DEFORM_ATTN.make(
        batch=1, queries=32, heads=1, levels=((2, 2),), device=backend.device
    )
    grad_out = grad_like(inputs)
    first, *_ = backend.backward(grad_out, inputs, deterministic=True)
    order = torch.randperm(32, device=backend.device)
    shuffled = inputs._replace(
        sampling_locations=inputs.sampling_locations[:, order],
        attention_weights=inputs.attention_weights[:, order],
    )
    second, *_ = backend.backward(grad_out[:, order], shuffled, deterministic=True)
    assert torch.equal(first, second)


def test_a_dtype_that_is_not_computed_in_is_named(backend, make):
    with pytest.raises(TypeError, match="float16, bfloat16, float32, not float64"):
        backend.forward(make(dtype=torch.float64))


@needs_gpu
def test_a_cuda_graph_replays_on_new_inputs(backend, make):
    inputs = make(levels=FOUR, queries=50)
    backend.forward(inputs)  # compiles outside of the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = backend.forward(inputs)
    for tensor, fresh in zip(inputs[3:], make(levels=FOUR, queries=50)[3:], strict=True):
        if isinstance(tensor, torch.Tensor):
            tensor.copy_(fresh)
    graph.replay()
    torch.testing.assert_close(out, backend.forward(inputs))


@needs_gpu
def test_tuning_saves_sizes_that_are_used(backend, make, tmp_path, monkeypatch):
    monkeypatch.setenv("TURBO_PHYSAI_TRITON_SIZES", str(tmp_path / "sizes.json"))
    inputs = make(levels=FOUR, queries=50, dim=32)
    kernels = backend.module(inputs).KERNELS
    times = kernels.tune(inputs)
    assert kernels.size_for("forward", inputs[0]) == min(times["forward"], key=times["forward"].get)
    check(backend, inputs)
