"""Temporal self-attention follows its definition on every backend, and torch takes it in whole."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from turbo_physai.kernels import (
    _cpu_library,
    temporal_self_attention,
    temporal_self_attention_backward,
)
from turbo_physai.kernels.ops import temporal_self_attention_cpu, temporal_self_attention_torch

FOUR = ((6, 9), (3, 5), (2, 2), (1, 3))
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
OP = torch.ops.turbo_physai


@pytest.fixture(params=[temporal_self_attention_cpu, temporal_self_attention_torch])
def backend(request):
    if request.param is temporal_self_attention_cpu and _cpu_library.library() is None:
        pytest.skip(str(_cpu_library.why_not()))
    return request.param


@pytest.fixture
def make(bev_attention):
    return bev_attention.make_temporal


@pytest.fixture
def check(bev_attention, backend):
    """Output and gradients of the backend, with every torch.empty full of NaN."""

    def check(inputs, **options):
        torch.use_deterministic_algorithms(True)
        try:
            bev_attention.check(backend, bev_attention.temporal, inputs, options=options)
        finally:
            torch.use_deterministic_algorithms(False)

    return check


@pytest.mark.parametrize("levels", [((6, 9),), FOUR], ids=["one level", "four levels"])
@pytest.mark.parametrize("batch", [1, 3])
def test_output_and_gradients_follow_the_definition(check, make, levels, batch):
    check(make(levels=levels, batch=batch))


@pytest.mark.parametrize("dim", [4, 12, 32, 48, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_multiple_of_four_is_a_head_dimension(check, make, dim, dtype):
    check(make(dim=dim, queries=5, dtype=dtype))


@pytest.mark.parametrize("entries", [1, 2, 3])
def test_a_queue_has_any_number_of_entries(check, make, entries):
    check(make(entries=entries))


@pytest.mark.parametrize("points", [1, 3, 8, 72])
def test_any_number_of_points(check, make, points):
    check(make(points=points, queries=4))


@pytest.mark.parametrize("queries", [1, 127, 300])
def test_any_number_of_queries(check, make, queries):
    check(make(queries=queries, batch=1, heads=2, dim=4))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("place_dtype", FLOATS)
def test_dtypes_may_be_mixed(check, make, dtype, place_dtype):
    check(make(dtype=dtype, place_dtype=place_dtype))


def test_inputs_need_not_be_contiguous(check, make, bev_attention):
    check(bev_attention.strided(make()))


def test_levels_may_overlap(check, make):
    check(make(levels=FOUR)._replace(level_start_index=torch.tensor([0, 5, 2, 1])))


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan, 1e30])
def test_a_reference_off_the_map_adds_nothing(make, backend, bev_attention, bad):
    inputs = make()
    inputs.reference_points[1, ::2, 0, 0] = bad
    far = inputs.reference_points.clone()
    far[1, ::2, 0, 0] = 9.0
    grad_out = torch.randn(2, 11, 24)
    far_inputs = inputs._replace(reference_points=far)
    wanted = bev_attention.expected(bev_attention.temporal, far_inputs, grad_out)
    found = (backend.forward(*inputs), *backend.backward(grad_out, *inputs))
    for actual, one in zip(found, wanted, strict=True):
        bev_attention.close(actual, one)


def test_large_logits_do_not_overflow(check, make):
    inputs = make()
    inputs.logits.mul_(100).add_(1e4)
    check(inputs)


def test_a_logit_of_minus_infinity_takes_its_sample_out(make, backend):
    inputs = make()
    inputs.logits[..., 1] = -torch.inf
    out = backend.forward(*inputs)
    inputs.offsets[:, :, :, :, 0, 1] += 0.3
    assert torch.equal(backend.forward(*inputs), out)
    inputs.logits[0, 0] = torch.nan
    inputs.reference_points[:, 0] = 0.5
    assert backend.forward(*inputs)[0, 0].isnan().any()


# The operator as torch sees it


def gradients(function, inputs, grad_out):
    wanted = (inputs.value, inputs.offsets, inputs.logits)
    return torch.autograd.grad(function(*inputs), wanted, grad_out)


def test_autograd_follows_the_definition(make, bev_attention):
    inputs = make(requires_grad=True)
    grad_out = torch.randn(2, 11, 24)
    out, *grads = bev_attention.expected(bev_attention.temporal, inputs, grad_out)
    bev_attention.close(temporal_self_attention(*inputs), out)
    for actual, one in zip(
        gradients(temporal_self_attention, inputs, grad_out), grads, strict=True
    ):
        bev_attention.close(actual, one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck_finds_nothing(make, dtype):
    inputs = make(requires_grad=True, dtype=dtype, place_dtype=torch.float32)
    torch.library.opcheck(OP.temporal_self_attention.default, tuple(inputs))
    detached = [t.detach() for t in inputs]
    grad_out = torch.randn(2, 11, 24, dtype=dtype)
    torch.library.opcheck(OP.temporal_self_attention_backward.default, (grad_out, *detached))


def test_it_compiles_without_a_graph_break(make):
    inputs = make(requires_grad=True)
    grad_out = torch.randn(2, 11, 24)

    def layer(*inputs):
        return temporal_self_attention(*inputs).relu() * 2

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs), layer(*inputs))
    for one, other in zip(
        gradients(compiled, inputs, grad_out), gradients(layer, inputs, grad_out), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_it_works_under_activation_checkpointing(make):
    inputs = make(requires_grad=True)
    grad_out = torch.randn(2, 11, 24)

    def kept(*inputs):
        return checkpoint(temporal_self_attention, *inputs, use_reentrant=False)

    for one, other in zip(
        gradients(kept, inputs, grad_out),
        gradients(temporal_self_attention, inputs, grad_out),
        strict=True,
    ):
        assert torch.equal(one, other)


def test_autocast_casts_nothing(make):
    inputs = make(requires_grad=True, dtype=torch.bfloat16, place_dtype=torch.float32)
    outside = temporal_self_attention(*inputs)
    with torch.autocast("cpu", torch.float16):
        inside = temporal_self_attention(*inputs)
    assert inside.dtype == torch.bfloat16
    assert torch.equal(inside, outside)
    grads = gradients(temporal_self_attention, inputs, torch.ones_like(inside))
    assert [g.dtype for g in grads] == [torch.bfloat16, torch.float32, torch.bfloat16]


def test_a_second_derivative_is_refused(make):
    inputs = make(requires_grad=True)
    out = temporal_self_attention(*inputs)
    (grad,) = torch.autograd.grad(out.sum(), inputs.value, create_graph=True)
    with pytest.raises(RuntimeError, match="temporal_self_attention has a first derivative only"):
        grad.sum().backward()


def test_reference_points_get_a_gradient_where_one_is_wanted(make, bev_attention):
    inputs = make()
    grad_out = torch.randn(2, 11, 24)
    points = inputs.reference_points.requires_grad_()
    (found,) = torch.autograd.grad(temporal_self_attention(*inputs), points, grad_out)
    wide = [t.detach().double() if t.is_floating_point() else t for t in inputs]
    wide[5].requires_grad_()
    (wanted,) = torch.autograd.grad(bev_attention.temporal(*wide), wide[5], grad_out.double())
    bev_attention.close(found, wanted)


@pytest.mark.parametrize(
    "sizes",
    [
        {"queries": 0},
        {"batch": 0},
        {"heads": 0},
        {"entries": 0},
        {"points": 0},
        {"levels": ((0, 5),)},
    ],
    ids=str,
)
def test_empty_inputs_give_zeros(make, sizes):
    inputs = make(**sizes, requires_grad=True)
    out = temporal_self_attention(*inputs)
    heads, dim = inputs.value.shape[2:]
    assert out.shape == (*inputs.offsets.shape[:2], heads * dim)
    assert not out.any()
    for grad in gradients(temporal_self_attention, inputs, torch.ones_like(out)):
        assert not grad.any()


MISTAKES = {
    "value must be (B * T, S, H, D), not (4, 69, 24)": lambda i: {"value": i.value.flatten(2)},
    "value must have 2 * 2 maps": lambda i: {"value": i.value[:3]},
    "multiple of 4 up to 256, not 6": lambda i: {"value": i.value[..., :6]},
    "offsets must be (B, Q, H, T, L, P, 2), not (2, 11, 3, 2, 2, 4)": lambda i: {
        "offsets": i.offsets[..., 0]
    },
    "offsets must be (2, 11, 3, 2, 2, 4, 2)": lambda i: {"offsets": i.offsets[:, :, :2]},
    "logits must be (2, 11, 3, 2, 8)": lambda i: {"logits": i.logits[..., :7]},
    "reference_points must be (4, 11, 2, 2)": lambda i: {
        "reference_points": i.reference_points[:2]
    },
    "level 1 (3 x 5, first row 60) does not lie in the 69 rows": lambda i: {
        "level_start_index": torch.tensor([0, 60])
    },
    "logits must be one of float16, bfloat16, float32, float64, not int64": lambda i: {
        "logits": i.logits.long()
    },
    "reference_points is on meta, value on cpu": lambda i: {
        "reference_points": i.reference_points.to("meta")
    },
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_gets_one_error_that_names_it(make, message):
    inputs = make()
    inputs = inputs._replace(**MISTAKES[message](inputs))
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        temporal_self_attention(*inputs)
    assert message in str(caught.value)


def test_a_wrong_gradient_is_refused(make):
    with pytest.raises(ValueError, match=r"grad_out must be \(2, 11, 24\), not \(2, 11, 23\)"):
        temporal_self_attention_backward(torch.ones(2, 11, 23), *make())


def test_without_the_library_torch_computes_the_same_and_says_so_once(make, tmp_path):
    inputs = make(requires_grad=True)
    out = temporal_self_attention(*inputs)
    grads = gradients(temporal_self_attention, inputs, torch.ones_like(out))
    torch.save((tuple(inputs), out, grads), tmp_path / "all.pt")
    script = """if True:
        import sys, warnings, torch
        from turbo_physai.kernels import temporal_self_attention
        inputs, wanted, grads = torch.load(sys.argv[1])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            out = temporal_self_attention(*inputs)
            found = torch.autograd.grad(out.sum(), [inputs[i] for i in (0, 3, 4)])
        for one, other in zip((out, *found), (wanted, *grads)):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        (warning,) = caught
        print(warning.message)
    """
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "all.pt")],
        env={**os.environ, "TURBO_PHYSAI_NO_CPU_LIBRARY": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert run.stdout.startswith("temporal_self_attention runs on PyTorch's own operators")
