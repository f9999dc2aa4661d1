"""Which cameras a query is sampled in; what else the operator shares is in `attention`."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import SPATIAL, TWO
from kernel_checks import check, grad_like


@pytest.fixture
def make(backend):
    return lambda **options: SPATIAL.make(device=backend.device, **options)


@pytest.mark.parametrize(("points", "heights"), [(1, 1), (8, 4), (6, 3), (5, 5), (34, 17)])
def test_points_belong_to_the_heights_in_turn(backend, make, points, heights):
    check(backend, make(points=points, heights=heights, queries=3, heads=1, levels=TWO, seen=0.2))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_visibility_may_be_integers(backend, make, dtype):
    inputs = make(queries=5)
    integers = inputs.visibility.to(dtype) * (200 if dtype == torch.uint8 else -(2**20))
    check(backend, inputs._replace(visibility=integers))


@pytest.mark.parametrize("cameras", [1, 6, 16, 17, 40])
def test_any_number_of_cameras(backend, make, cameras):
    check(backend, make(cameras=cameras, queries=5, heads=1, dim=4, points=2, seen=0.3))


def test_more_cameras_than_a_mask_has_bits_in_16_bits(backend, make):
    check(backend, make(cameras=20, queries=4, heads=1, dim=4, seen=0.5, dtype=torch.bfloat16))


def test_a_camera_that_sees_nothing_counts_for_nothing(backend, make):
    inputs = make(queries=9)
    inputs.visibility[1] = False
    check(backend, inputs)
    inputs.value[:, 1] = torch.nan  # which must not matter
    rest = [0, 2]
    without = inputs._replace(
        value=inputs.value[:, rest],
        reference_points_cam=inputs.reference_points_cam[rest],
        visibility=inputs.visibility[rest],
    )
    check(backend, without)
    assert torch.equal(backend.forward(inputs), backend.forward(without))
    grads = backend.backward(grad_like(inputs), inputs)
    assert not grads[0][:, 1].any()
    assert all(grad.isfinite().all() for grad in grads)


def test_a_query_that_its_neighbour_sees_in_another_camera_stays_out_of_it(backend, make):
    inputs = make(cameras=2, queries=8, reach=-0.3)
    inputs.visibility.fill_(False)
    inputs.visibility[0, :, ::2, 0] = True
    inputs.visibility[1, :, 1::2, 1] = True
    check(backend, inputs)
    inputs.value[:, 1] = torch.inf
    assert backend.forward(inputs)[:, ::2].isfinite().all()


def test_queries_that_no_camera_sees_get_zeros(backend, make):
    inputs = make(queries=40, dim=4, points=2, seen=0.9)
    inputs.visibility[:, :, 3:37] = False
    inputs.visibility[0, :, 2] = True
    check(backend, inputs)
    out = backend.forward(inputs)
    assert not out[:, 3:37].any()
    assert out[:, 2].any()
    _, *grads = backend.backward(torch.ones_like(out), inputs)
    assert not any(grad[:, 3:37].any() for grad in grads)


def test_one_visible_height_makes_the_whole_query_seen(backend, make):
    inputs = make(heights=4, queries=5)
    inputs.visibility[:] = False
    inputs.visibility[..., 2] = True
    everything = inputs._replace(visibility=torch.ones_like(inputs.visibility))
    assert torch.equal(backend.forward(inputs), backend.forward(everything))


@pytest.mark.parametrize("first_item_visibility", [False, True])
def test_cameras_of_each_item_or_of_the_first(backend, make, first_item_visibility):
    inputs = make(
        batch=3, cameras=4, queries=7, heads=1, first_item_visibility=first_item_visibility
    )
    assert not torch.equal(inputs.visibility[:, 0].any(-1), inputs.visibility[:, 1].any(-1))
    check(backend, inputs)
    inputs.visibility[:, 0] = False
    assert bool(backend.forward(inputs).any()) != first_item_visibility


def test_the_first_item_chooses_for_itself_what_each_item_chooses(backend, make):
    inputs = make(batch=1)
    first = inputs._replace(first_item_visibility=True)
    assert torch.equal(backend.forward(inputs), backend.forward(first))
