"""Spatial cross-attention follows its definition on every backend, and torch takes it in whole."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from turbo_physai.kernels import (
    _cpu_library,
    spatial_cross_attention,
    spatial_cross_attention_backward,
)
from turbo_physai.kernels.ops import spatial_cross_attention_cpu, spatial_cross_attention_torch

FOUR = ((6, 9), (3, 5), (2, 2), (1, 3))
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
OP = torch.ops.turbo_physai


@pytest.fixture(params=[spatial_cross_attention_cpu, spatial_cross_attention_torch])
def backend(request):
    if request.param is spatial_cross_attention_cpu and _cpu_library.library() is None:
        pytest.skip(str(_cpu_library.why_not()))
    return request.param


@pytest.fixture
def make(bev_attention):
    return bev_attention.make_spatial


@pytest.fixture
def check(bev_attention, backend):
    """Output and gradients of the backend, with every torch.empty full of NaN."""

    def check(inputs, **options):
        torch.use_deterministic_algorithms(True)
        try:
            bev_attention.check(backend, bev_attention.spatial, inputs, options=options)
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


@pytest.mark.parametrize(("points", "heights"), [(1, 1), (8, 4), (6, 3), (5, 5), (72, 4)])
def test_points_belong_to_the_heights_in_turn(check, make, points, heights):
    check(make(points=points, heights=heights, queries=4))


@pytest.mark.parametrize("queries", [1, 127, 300])
def test_any_number_of_queries(check, make, queries):
    check(make(queries=queries, batch=1, heads=2, dim=4))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("place_dtype", FLOATS)
def test_dtypes_may_be_mixed(check, make, dtype, place_dtype):
    check(make(dtype=dtype, place_dtype=place_dtype))


def test_inputs_need_not_be_contiguous(check, make, bev_attention):
    check(bev_attention.strided(make()))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_visibility_may_be_integers(check, make, dtype):
    inputs = make()
    check(inputs._replace(visibility=inputs.visibility.to(dtype) * 2))


def test_levels_may_overlap(check, make):
    check(make(levels=FOUR)._replace(level_start_index=torch.tensor([0, 5, 2, 1])))


def test_a_camera_that_sees_nothing_counts_for_nothing(check, make, backend):
    inputs = make()
    inputs.visibility[1] = False
    inputs.value[:, 1] = torch.nan  # which must not matter
    rest = [0, 2]
    without = inputs._replace(
        value=inputs.value[:, rest],
        reference_points_cam=inputs.reference_points_cam[rest],
        visibility=inputs.visibility[rest],
    )
    check(without)
    assert torch.equal(backend.forward(*inputs), backend.forward(*without))
    grad_value, *_ = backend.backward(torch.randn(2, 11, 24), *inputs)
    assert not grad_value[:, 1].any()


def test_a_query_that_no_camera_sees_gets_zeros(make, backend):
    inputs = make()
    inputs.visibility[:, 0, 3] = False
    inputs.visibility[0, 0, 4] = True
    assert not backend.forward(*inputs)[0, 3].any()
    assert backend.forward(*inputs)[0, 4].any()
    _, grad_offsets, grad_logits = backend.backward(torch.ones(2, 11, 24), *inputs)
    assert not grad_offsets[0, 3].any()
    assert not grad_logits[0, 3].any()


def test_one_visible_height_makes_the_whole_query_seen(make, backend):
    inputs = make(heights=4)
    inputs.visibility[:] = False
    inputs.visibility[..., 2] = True
    everything = inputs._replace(visibility=torch.ones_like(inputs.visibility))
    assert torch.equal(backend.forward(*inputs), backend.forward(*everything))


def test_the_first_item_may_choose_the_cameras_of_all(check, make):
    inputs = make(batch=3)
    assert not torch.equal(inputs.visibility[:, 0].any(-1), inputs.visibility[:, 1].any(-1))
    check(inputs, first_item_visibility=True)


def test_the_first_item_chooses_for_itself_what_each_item_chooses(make, backend):
    inputs = make(batch=1)
    assert torch.equal(
        backend.forward(*inputs), backend.forward(*inputs, first_item_visibility=True)
    )


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan, 1e30])
def test_a_reference_off_the_image_adds_nothing(make, backend, bev_attention, bad):
    inputs = make(points=2, heights=2)
    inputs.reference_points_cam[1, :, ::2, 0, 0] = bad
    far = inputs.reference_points_cam.clone()
    far[1, :, ::2, 0, 0] = 9.0
    grad_out = torch.randn(2, 11, 24)
    far_inputs = inputs._replace(reference_points_cam=far)
    wanted = bev_attention.expected(bev_attention.spatial, far_inputs, grad_out)
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
    inputs.offsets[:, :, :, 0, 1] += 0.3
    assert torch.equal(backend.forward(*inputs), out)
    inputs.logits[0, 0] = torch.nan
    inputs.visibility[:, 0, 0] = True
    assert backend.forward(*inputs)[0, 0].isnan().any()


# The operator as torch sees it


def gradients(function, inputs, grad_out):
    wanted = (inputs.value, inputs.offsets, inputs.logits)
    return torch.autograd.grad(function(*inputs), wanted, grad_out)


def test_autograd_follows_the_definition(make, bev_attention):
    inputs = make(requires_grad=True)
    grad_out = torch.randn(2, 11, 24)
    out, *grads = bev_attention.expected(bev_attention.spatial, inputs, grad_out)
    bev_attention.close(spatial_cross_attention(*inputs), out)
    for actual, one in zip(
        gradients(spatial_cross_attention, inputs, grad_out), grads, strict=True
    ):
        bev_attention.close(actual, one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("first", [False, True])
def test_opcheck_finds_nothing(make, dtype, first):
    inputs = make(requires_grad=True, dtype=dtype, place_dtype=torch.float32)
    torch.library.opcheck(OP.spatial_cross_attention.default, (*inputs, first))
    detached = [t.detach() for t in inputs]
    grad_out = torch.randn(2, 11, 24, dtype=dtype)
    torch.library.opcheck(OP.spatial_cross_attention_backward.default, (grad_out, *detached, first))


def test_it_compiles_without_a_graph_break(make):
    inputs = make(requires_grad=True)
    grad_out = torch.randn(2, 11, 24)

    def layer(*inputs):
        return spatial_cross_attention(*inputs, first_item_visibility=True).relu() * 2

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
        return checkpoint(spatial_cross_attention, *inputs, use_reentrant=False)

    for one, other in zip(
        gradients(kept, inputs, grad_out),
        gradients(spatial_cross_attention, inputs, grad_out),
        strict=True,
    ):
        assert torch.equal(one, other)


def test_autocast_casts_nothing(make):
    inputs = make(requires_grad=True, dtype=torch.bfloat16, place_dtype=torch.float32)
    outside = spatial_cross_attention(*inputs)
    with torch.autocast("cpu", torch.float16):
        inside = spatial_cross_attention(*inputs)
    assert inside.dtype == torch.bfloat16
    assert torch.equal(inside, outside)
    grads = gradients(spatial_cross_attention, inputs, torch.ones_like(inside))
    assert [g.dtype for g in grads] == [torch.bfloat16, torch.float32, torch.bfloat16]


def test_a_second_derivative_is_refused(make):
    inputs = make(requires_grad=True)
    out = spatial_cross_attention(*inputs)
    (grad,) = torch.autograd.grad(out.sum(), inputs.value, create_graph=True)
    with pytest.raises(RuntimeError, match="spatial_cross_attention has a first derivative only"):
        grad.sum().backward()


def test_reference_points_that_want_a_gradient_are_refused(make):
    inputs = make()
    inputs.reference_points_cam.requires_grad_()
    with pytest.raises(RuntimeError, match=r"pass reference_points_cam\.detach\(\)"):
        spatial_cross_attention(*inputs)
    with torch.no_grad():
        assert spatial_cross_attention(*inputs).any()


@pytest.mark.parametrize(
    "sizes",
    [
        {"queries": 0},
        {"batch": 0},
        {"heads": 0},
        {"cameras": 0},
        {"points": 0},
        {"heights": 0},
        {"levels": ((0, 5),)},
    ],
    ids=str,
)
def test_empty_inputs_give_zeros(make, sizes):
    inputs = make(**sizes, requires_grad=True)
    out = spatial_cross_attention(*inputs)
    batch, _, _, heads, dim = inputs.value.shape
    assert out.shape == (batch, inputs.offsets.shape[1], heads * dim)
    assert not out.any()
    for grad in gradients(spatial_cross_attention, inputs, torch.ones_like(out)):
        assert not grad.any()


MISTAKES = {
    "value must be (B, N, S, H, D), not (2, 3, 69, 24)": lambda i: {"value": i.value.flatten(3)},
    "multiple of 4 up to 256, not 6": lambda i: {"value": i.value[..., :6]},
    "offsets must be (B, Q, H, L, P, 2), not (2, 11, 3, 2, 4)": lambda i: {
        "offsets": i.offsets[..., 0]
    },
    "offsets must be (2, 11, 3, 2, 4, 2)": lambda i: {"offsets": i.offsets[:1]},
    "logits must be (2, 11, 3, 8)": lambda i: {"logits": i.logits[..., :7]},
    "reference_points_cam must be (3, 2, 11, 2, 2)": lambda i: {
        "reference_points_cam": i.reference_points_cam[:2]
    },
    "visibility must be (3, 2, 11, 2)": lambda i: {"visibility": i.visibility[..., :1]},
    "visibility must be one of bool, uint8": lambda i: {"visibility": i.visibility.float()},
    "a multiple of 3 points, the number of heights of reference_points_cam, not 4": lambda i: {
        "reference_points_cam": i.reference_points_cam[:, :, :, [0, 1, 1]],
        "visibility": i.visibility[..., [0, 1, 1]],
    },
    "level 1 (3 x 5, first row 60) does not lie in the 69 rows": lambda i: {
        "level_start_index": torch.tensor([0, 60])
    },
    "logits must be one of float16, bfloat16, float32, float64, not int64": lambda i: {
        "logits": i.logits.long()
    },
    "visibility is on meta, value on cpu": lambda i: {"visibility": i.visibility.to("meta")},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_gets_one_error_that_names_it(make, message):
    inputs = make()
    inputs = inputs._replace(**MISTAKES[message](inputs))
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        spatial_cross_attention(*inputs)
    assert message in str(caught.value)


def test_a_wrong_gradient_is_refused(make):
    with pytest.raises(ValueError, match=r"grad_out must be \(2, 11, 24\), not \(2, 11, 23\)"):
        spatial_cross_attention_backward(torch.ones(2, 11, 23), *make())


def test_without_the_library_torch_computes_the_same_and_says_so_once(make, tmp_path):
    inputs = make(requires_grad=True)
    out = spatial_cross_attention(*inputs)
    grads = gradients(spatial_cross_attention, inputs, torch.ones_like(out))
    torch.save((tuple(inputs), out, grads), tmp_path / "all.pt")
    script = """if True:
        import sys, warnings, torch
        from turbo_physai.kernels import spatial_cross_attention
        inputs, wanted, grads = torch.load(sys.argv[1])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            out = spatial_cross_attention(*inputs)
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
    assert run.stdout.startswith("spatial_cross_attention runs on PyTorch's own operators")
