"""The attention operators follow their definitions on every backend, outputs and gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from kernel_cases import FOUR, MS_DEFORM_ATTN, TWO
from kernel_checks import FLOATS, check, close, expected, grad_like, strided

ONE = ((6, 9),)
BAD = [torch.inf, -torch.inf, torch.nan, 1e30, -1e30]


@pytest.fixture
def make(attention, backend):
    """Makes inputs on the backend's device, fewer of them for Triton's interpreter."""
    few = {"batch": 1, "queries": 3, "heads": 1, "points": 2} if backend.is_interpreted else {}
    return lambda **options: attention.make(device=backend.device, **{**few, **options})


@pytest.mark.parametrize("reach", [-0.2, 0.1, 20.0])
@pytest.mark.parametrize("levels", [ONE, FOUR], ids=["one level", "four levels"])
@pytest.mark.parametrize("batch", [1, 3])
def test_inside_on_the_border_and_far_outside(backend, make, levels, batch, reach):
    check(backend, make(levels=levels, batch=batch, queries=5, reach=reach))


@pytest.mark.parametrize("dim", [4, 8, 12, 16, 20, 28, 32, 36, 48, 60, 64, 100, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_head_dimensions(backend, make, dim, dtype):
    if dtype not in backend.floats:
        pytest.skip("not computed in")
    check(backend, make(dim=dim, queries=3, heads=2, points=2, levels=ONE, dtype=dtype))


@pytest.mark.parametrize("points", [1, 6, 20, 130])
def test_any_number_of_points(backend, make, points):
    if backend.is_interpreted and points > 20:
        pytest.skip("takes a minute")
    check(backend, make(points=points, queries=2, heads=1, dim=4, levels=ONE))


@pytest.mark.parametrize("queries", [1, 31, 33, 130])
def test_any_number_of_queries(backend, make, queries):
    check(backend, make(queries=queries, batch=2, heads=2, dim=4, points=2, levels=ONE))


@pytest.mark.parametrize(("dtype", "other"), list(itertools.product(FLOATS, FLOATS)), ids=str)
def test_dtypes_may_be_mixed(backend, make, dtype, other):
    if not {dtype, other} <= set(backend.floats):
        pytest.skip("not computed in")
    check(backend, make(dtype=dtype, other_dtype=other, queries=5, heads=2))


def test_inputs_need_not_be_contiguous(backend, make):
    inputs = make()
    check(backend, strided(inputs))
    grad_out = torch.ones(1, 1, 1, device=backend.device).expand(inputs.result().shape)
    for one, other in zip(
        backend.backward(grad_out, strided(inputs)),
        backend.backward(grad_out.contiguous(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pairs_may_start_between_two_pairs(backend, make, dtype):
    def shifted(pairs):
        pairs = torch.cat((pairs.new_zeros(1), pairs.flatten()))[1:].view(pairs.shape)
        assert pairs.data_ptr() % (2 * pairs.element_size())
        return pairs

    inputs = make(dtype=dtype, queries=4)
    places = {
        name: shifted(tensor)
        for name, tensor in inputs._asdict().items()
        if name in ("sampling_locations", "offsets") or name.startswith("reference_points")
    }
    check(backend, inputs._replace(**places))


def test_indices_may_be_int32(backend, make):
    inputs = make(queries=3)
    narrow = inputs._replace(
        spatial_shapes=inputs.spatial_shapes.int(), level_start_index=inputs.level_start_index.int()
    )
    check(backend, narrow)


def test_levels_may_leave_gaps_and_lie_in_any_order(backend, make):
    inputs = make(levels=TWO, queries=5)
    value = torch.randn(*inputs.value.shape[:-3], 100, *inputs.value.shape[-2:])
    starts = torch.tensor([20, 3], device=backend.device)
    check(backend, inputs._replace(value=value.to(backend.device), level_start_index=starts))


def test_levels_may_overlap(backend, make):
    starts = torch.tensor([0, 5, 2, 1], device=backend.device)
    check(backend, make(levels=FOUR, queries=5)._replace(level_start_index=starts))


@pytest.mark.parametrize("bad", BAD)
def test_a_sample_that_is_nowhere_adds_nothing(backend, make, bad):
    inputs = make(queries=6)
    inputs[3][:, ::2, ..., 1, 0] = bad
    inputs[3][:, 1, ..., 1] = bad
    check(backend, inputs)
    inputs[3].fill_(bad)
    assert not backend.forward(inputs).any()
    assert not any(grad.any() for grad in backend.backward(grad_like(inputs), inputs))


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_an_infinite_pixel_does_not_reach_samples_outside(backend, make, bad):
    inputs = make(queries=4)
    inputs.value.fill_(bad)
    inputs[3].fill_(1e4)
    assert not backend.forward(inputs).any()
    assert all(grad.isfinite().all() for grad in backend.backward(grad_like(inputs), inputs))


def test_a_pixel_beside_the_corner_does_not_reach_the_sample(backend):
    inputs = MS_DEFORM_ATTN.make(
        batch=1, queries=1, heads=1, points=1, levels=((2, 2),), device=backend.device
    )
    inputs.value[0, 1] = torch.inf  # the pixel (0, 1), to the right of the sample's only neighbour
    inputs.sampling_locations[:] = -0.1
    assert backend.forward(inputs).isfinite().all()
    grads = backend.backward(torch.ones(1, 1, 8, device=backend.device), inputs)
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", ["inside", "half outside", "outside"])
def test_a_weight_that_is_not_finite_counts_where_the_sample_has_pixels(backend, place, bad):
    inputs = MS_DEFORM_ATTN.make(
        batch=1, queries=2, heads=1, points=2, levels=((4, 4),), device=backend.device
    )
    inputs.value.abs_().add_(1)
    inputs.sampling_locations[:] = {"inside": 0.55, "half outside": 0.05, "outside": 1.6}[place]
    inputs.attention_weights[:, 0, :, :, 1] = bad
    grad_out = torch.ones(1, 2, 8, device=backend.device)
    out, *grads = expected(inputs, grad_out)
    found = [backend.forward(inputs), *backend.backward(grad_out, inputs)]
    for actual, one in zip(found, (out, *grads), strict=True):
        # Corner by corner an infinite slope is inf - inf.
        actual, one = (t.double().where(t.isfinite(), torch.nan) for t in (actual, one))
        torch.testing.assert_close(actual, one, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert bool(found[0][0, 0].isfinite().all()) == (place == "outside")
    assert found[0][0, 1].isfinite().all()


def test_a_location_on_a_pixel_reads_that_pixel(backend):
    inputs = MS_DEFORM_ATTN.make(
        batch=1, queries=1, heads=1, points=1, levels=((3, 4),), device=backend.device
    )
    inputs.sampling_locations[:] = torch.tensor([(2 + 0.5) / 4, (1 + 0.5) / 3])
    inputs.attention_weights[:] = 1
    torch.testing.assert_close(backend.forward(inputs)[0, 0], inputs.value[0, 1 * 4 + 2, 0])


def test_many_samples_on_one_pixel_keep_their_sum_in_16_bits(backend):
    inputs = MS_DEFORM_ATTN.make(
        batch=1,
        queries=64,
        points=8,
        heads=1,
        dim=4,
        levels=((1, 1),),
        dtype=torch.bfloat16,
        device=backend.device,
    )
    inputs.sampling_locations.fill_(0.5)
    inputs.attention_weights.fill_(1.0)
    grad_out = torch.ones(1, 64, 4, device=backend.device)
    grad_value, *_ = backend.backward(grad_out, inputs)
    torch.testing.assert_close(grad_value, torch.full_like(grad_value, 512))


@pytest.mark.parametrize("wanted", list(itertools.product([True, False], repeat=3)), ids=str)
def test_a_gradient_that_is_not_wanted_changes_none_of_the_others(backend, make, wanted):
    inputs = make(queries=5)
    grad_out = grad_like(inputs)
    everything = backend.backward(grad_out, inputs)
    for found, one, needed in zip(
        backend.backward(grad_out, inputs, wanted), everything, wanted, strict=True
    ):
        if needed:
            torch.testing.assert_close(found, one)


def test_the_gradient_of_the_value_is_not_computed_where_it_is_not_wanted(backend, make):
    inputs = make(queries=5)
    assert backend.backward(grad_like(inputs), inputs, (False, True, True))[0] is None


# Softmax


@pytest.fixture
def softmax_make(make, attention):
    if attention is MS_DEFORM_ATTN:
        pytest.skip("has weights, no logits")
    return make


def test_large_logits_do_not_overflow(backend, softmax_make):
    inputs = softmax_make(queries=5)
    inputs.logits.mul_(100).add_(1e4)
    check(backend, inputs)


def test_logits_of_minus_infinity_take_their_samples_out(backend, softmax_make):
    inputs = softmax_make(points=20, queries=3, heads=1, levels=ONE)
    inputs.logits.mul_(30)
    inputs.logits[:, 1, ..., :18] = -torch.inf
    check(backend, inputs)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_logit_that_is_not_finite_shows_and_touches_nothing_else(backend, softmax_make, bad):
    inputs = softmax_make(queries=6, reach=0.3)
    if hasattr(inputs, "visibility"):
        inputs.visibility.fill_(True)
    inputs.logits[:, 1, ..., 1] = bad
    out = backend.forward(inputs)
    others = [0, 2, 3, 4, 5]
    assert out[:, 1].isnan().any()
    assert out[:, others].isfinite().all()
    _, grad_offsets, grad_logits = backend.backward(torch.ones_like(out), inputs)
    assert grad_logits[:, 1].isnan().all()
    assert all(grad[:, others].isfinite().all() for grad in (grad_offsets, grad_logits))


@pytest.mark.parametrize("bad", BAD)
def test_a_reference_off_the_map_adds_nothing(backend, softmax_make, bad):
    inputs = softmax_make(queries=6)
    far = inputs[5].clone()
    inputs[5][..., ::2, 0, 0] = bad
    far[..., ::2, 0, 0] = 9.0
    grad_out = grad_like(inputs)
    wanted = expected(inputs._replace(**{inputs._fields[5]: far}), grad_out)
    found = (backend.forward(inputs), *backend.backward(grad_out, inputs))
    for actual, one in zip(found, wanted, strict=True):
        close(actual, one)
