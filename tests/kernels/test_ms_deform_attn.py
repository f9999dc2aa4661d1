"""The operator as torch sees it: registered, differentiable, compilable, and clear about misuse."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from turbo_physai.kernels import ms_deform_attn, ms_deform_attn_backward


def gradients(function, inputs, grad_out):
    return torch.autograd.grad(function(*inputs), [inputs[i] for i in (0, 3, 4)], grad_out)


def test_autograd_follows_the_definition(make, expected):
    inputs = make(requires_grad=True)
    grad_out = torch.randn(2, 11, 24)
    out, *grads = expected(inputs, grad_out)
    torch.testing.assert_close(ms_deform_attn(*inputs).double(), out, rtol=1e-5, atol=1e-5)
    for actual, wanted in zip(gradients(ms_deform_attn, inputs, grad_out), grads, strict=True):
        torch.testing.assert_close(actual.double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck_finds_nothing(make, dtype):
    inputs = make(requires_grad=True, dtype=dtype, location_dtype=torch.float32)
    torch.library.opcheck(torch.ops.turbo_physai.ms_deform_attn.default, tuple(inputs))
    detached = tuple(t.detach() for t in inputs)
    torch.library.opcheck(
        torch.ops.turbo_physai.ms_deform_attn_backward.default,
        (torch.randn(2, 11, 24, dtype=dtype), *detached),
    )


def test_it_compiles_without_a_graph_break(make):
    inputs = make(requires_grad=True)
    grad_out = torch.randn(2, 11, 24)

    def layer(*inputs):
        return ms_deform_attn(*inputs).relu() * 2

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs), layer(*inputs))
    for one, other in zip(
        gradients(compiled, inputs, grad_out), gradients(layer, inputs, grad_out), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_a_compiled_graph_serves_other_sizes(make):
    compiled = torch.compile(ms_deform_attn, fullgraph=True, backend="aot_eager", dynamic=True)
    for queries in (4, 9, 17):
        inputs = make(queries=queries)
        torch.testing.assert_close(compiled(*inputs), ms_deform_attn(*inputs))


def test_it_works_under_activation_checkpointing(make):
    inputs = make(requires_grad=True)
    grad_out = torch.randn(2, 11, 24)

    def kept(*inputs):
        return checkpoint(ms_deform_attn, *inputs, use_reentrant=False)

    for one, other in zip(
        gradients(kept, inputs, grad_out), gradients(ms_deform_attn, inputs, grad_out), strict=True
    ):
        assert torch.equal(one, other)


def test_a_second_derivative_is_refused(make):
    inputs = make(requires_grad=True)
    (grad,) = torch.autograd.grad(ms_deform_attn(*inputs).sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match="ms_deform_attn has a first derivative only"):
        grad.sum().backward()


@pytest.mark.parametrize("library", ["compiled", "torch"])
def test_autocast_casts_nothing(make, library, monkeypatch):
    if library == "torch":
        monkeypatch.setattr("turbo_physai.kernels.ops.ms_deform_attn.uses_cpu_library", no)
    inputs = make(requires_grad=True)
    half = make(requires_grad=True, dtype=torch.bfloat16, location_dtype=torch.float32)
    for one in (inputs, half):
        outside = ms_deform_attn(*one)
        with torch.autocast("cpu", torch.bfloat16):
            inside = ms_deform_attn(*one)
        assert inside.dtype == one[0].dtype
        assert torch.equal(inside, outside)
        for grad, like in zip(
            gradients(ms_deform_attn, one, torch.ones_like(inside)),
            (one[0], *one[3:]),
            strict=True,
        ):
            assert grad.dtype == like.dtype


def no(*_):
    return False


@pytest.mark.parametrize(
    "sizes", [{"queries": 0}, {"batch": 0}, {"heads": 0}, {"points": 0}, {"levels": ((0, 5),)}]
)
def test_empty_inputs_give_zeros(make, sizes):
    inputs = make(**sizes, requires_grad=True)
    out = ms_deform_attn(*inputs)
    value, locations = inputs[0], inputs[3]
    assert out.shape == (value.shape[0], locations.shape[1], value.shape[2] * value.shape[3])
    assert not out.any()
    for grad in gradients(ms_deform_attn, inputs, torch.ones_like(out)):
        assert not grad.any()


def test_indices_may_be_int32(make):
    inputs = make()
    narrow = inputs._replace(
        spatial_shapes=inputs.spatial_shapes.int(), level_start_index=inputs.level_start_index.int()
    )
    assert torch.equal(ms_deform_attn(*narrow), ms_deform_attn(*inputs))


MISTAKES = {
    "value must be (B, S, H, D), not (2, 69, 24)": lambda i: i._replace(value=i.value.flatten(2)),
    "multiple of 4 up to 256, not 6": lambda i: i._replace(value=i.value[..., :6]),
    "multiple of 4 up to 256, not 260": lambda i: i._replace(
        value=i.value.repeat(1, 1, 1, 33)[..., :260]
    ),
    "sampling_locations must be (B, Q, H, L, P, 2), not (2, 11, 3, 2, 4)": lambda i: i._replace(
        sampling_locations=i.sampling_locations[..., 0]
    ),
    "sampling_locations must be (2, 11, 3, 2, 4, 2)": lambda i: i._replace(
        sampling_locations=i.sampling_locations[:1]
    ),
    "attention_weights must be (2, 11, 3, 2, 4)": lambda i: i._replace(
        attention_weights=i.attention_weights[..., :3]
    ),
    "spatial_shapes must be (2, 2)": lambda i: i._replace(spatial_shapes=i.spatial_shapes[:1]),
    "level_start_index must be (2,)": lambda i: i._replace(
        level_start_index=i.level_start_index[:1]
    ),
    "level 1 (3 x 5, first row 60) does not lie in the 69 rows": lambda i: i._replace(
        level_start_index=torch.tensor([0, 60])
    ),
    "level 0 (6 x 9, first row -1) does not lie": lambda i: i._replace(
        level_start_index=torch.tensor([-1, 54])
    ),
    "value must be one of float16, bfloat16, float32, float64, not int64": lambda i: i._replace(
        value=i.value.long()
    ),
    "spatial_shapes must be one of int32, int64, not float32": lambda i: i._replace(
        spatial_shapes=i.spatial_shapes.float()
    ),
    "sampling_locations is on meta, value on cpu": lambda i: i._replace(
        sampling_locations=i.sampling_locations.to("meta")
    ),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_gets_one_error_that_names_it(make, message):
    inputs = MISTAKES[message](make())
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        ms_deform_attn(*inputs)
    assert message in str(caught.value)


def test_a_wrong_gradient_is_refused(make):
    with pytest.raises(ValueError, match=r"grad_out must be \(2, 11, 24\), not \(2, 11, 23\)"):
        ms_deform_attn_backward(torch.ones(2, 11, 23), *make())


def test_without_the_library_torch_computes_and_says_so_once():
    script = """if True:
        import warnings, torch
        from turbo_physai.kernels import backends, ms_deform_attn
        inputs = (torch.randn(1, 16, 2, 8), torch.tensor([[4, 4]]), torch.tensor([0]),
                  torch.rand(1, 5, 2, 1, 4, 2), torch.rand(1, 5, 2, 1, 4))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            out = ms_deform_attn(*inputs)
            assert torch.equal(out, ms_deform_attn(*inputs))
        assert out.abs().sum() > 0
        assert len(caught) == 1, caught
        print(caught[0].message)
        print(backends())
    """
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TURBO_PHYSAI_NO_CPU_LIBRARY": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    reason = "switched off by TURBO_PHYSAI_NO_CPU_LIBRARY"
    assert f"PyTorch's own operators: {reason}" in run.stdout
    assert f"missing: {reason}" in run.stdout
