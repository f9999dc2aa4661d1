"""What the Triton kernels of spatial_cross_attention compute, against autograd in float64.

`test_spatial_cross_attention_triton.py` starts it (see `triton_checks`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from triton_checks import DEVICE, FOUR, ONE, TWO, close, levels_of, poisoned, sample
from turbo_physai.kernels.ops import spatial_cross_attention_triton as op

__all__ = ["poisoned"]


class Inputs(NamedTuple):
    value: Tensor
    spatial_shapes: Tensor
    level_start_index: Tensor
    offsets: Tensor
    logits: Tensor
    reference_points_cam: Tensor
    visibility: Tensor


def pixels(inputs: Inputs) -> Tensor:
    """(N, B, Q, H, L, P, 2)."""
    offsets, references = inputs.offsets, inputs.reference_points_cam
    height = torch.arange(offsets.shape[4], device=offsets.device) % references.shape[3]
    sizes = inputs.spatial_shapes.flip(1)[:, None]
    return references[:, :, :, height].double()[:, :, :, None, None] * sizes + offsets - 0.5


def reference(inputs: Inputs, first_item_visibility: bool = False) -> Tensor:
    """The definition, camera by camera."""
    value, shapes, starts, offsets, logits, _, visibility = inputs
    weights = logits.softmax(-1).view(offsets.shape[:-1])
    seen = (visibility != 0).any(-1)
    count = seen.sum(0).clamp(min=1)
    if first_item_visibility:
        seen = seen[:, :1].expand_as(seen)
    out = value.new_zeros(())
    for camera, places in enumerate(pixels(inputs)):
        samples = sample(value[:, camera], shapes, starts, places, weights)
        out = out + samples * seen[camera, :, :, None]
    return out / count[..., None]


def make(
    *,
    levels: tuple[tuple[int, int], ...] = ONE,
    batch: int = 1,
    cameras: int = 2,
    queries: int = 5,
    heads: int = 2,
    dim: int = 8,
    points: int = 2,
    heights: int = 2,
    reach: float = 0.3,
    seen: float = 0.4,
    dtype: torch.dtype = torch.float32,
    offset_dtype: torch.dtype | None = None,
    reference_dtype: torch.dtype = torch.float32,
) -> Inputs:
    """Fresh inputs; references lie up to `reach` outside of the images (negative: inside).

    A camera sees a point with probability `seen`. Offsets are drawn again where a sample would lie
    where slopes jump, and rounding decides.
    """
    shapes, starts, keys = levels_of(levels)
    other = offset_dtype or dtype
    references = torch.rand(cameras, batch, queries, heights, 2) * (1 + 2 * reach) - reach
    inputs = Inputs(
        torch.randn(batch, cameras, keys, heads, dim).to(DEVICE, dtype),
        shapes,
        starts,
        torch.zeros(batch, queries, heads, len(levels), points, 2).to(DEVICE, other),
        (3 * torch.randn(batch, queries, heads, len(levels) * points)).to(DEVICE, other),
        references.to(DEVICE, reference_dtype),
        (torch.rand(cameras, batch, queries, heights) < seen).to(DEVICE),
    )
    again = torch.ones_like(inputs.offsets, dtype=torch.bool)
    while again.any():
        inputs.offsets.copy_(
            torch.where(again, 2 * torch.randn(again.shape).to(DEVICE), inputs.offsets)
        )
        places = pixels(inputs)
        again = ((places - places.round()).abs() < 1e-3).any(0)
    return inputs


def check(
    inputs: Inputs, first_item_visibility: bool = False, *, deterministic: bool = False
) -> None:
    """Output and gradients are those of the reference, within the rounding of each dtype."""
    wide = Inputs(*(t.detach().double() if t.is_floating_point() else t for t in inputs))
    wanted = [t.requires_grad_() for t in (wide.value, wide.offsets, wide.logits)]
    expected = reference(wide, first_item_visibility)
    grad_out = torch.randn(expected.shape, device=DEVICE).to(inputs.value.dtype)
    expected_grads = torch.autograd.grad(expected, wanted, grad_out.double())

    close(op.forward(*inputs, first_item_visibility), expected, inputs.value.dtype)
    grads = op.backward(grad_out, *inputs, first_item_visibility, deterministic=deterministic)
    close(grads[0], expected_grads[0], inputs.value.dtype)
    close(grads[1], expected_grads[1], inputs.offsets.dtype)
    # Softmax's gradient is differences of numbers of about 1.
    close(grads[2], expected_grads[2], inputs.logits.dtype, terms=1.0)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("levels", [ONE, FOUR])
@pytest.mark.parametrize("reach", [-0.2, 0.3, 20.0])
def test_inside_on_the_border_and_far_outside(
    levels: tuple[tuple[int, int], ...], reach: float, deterministic: bool
) -> None:
    check(make(levels=levels, reach=reach, batch=2, heads=1), deterministic=deterministic)


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan"), 1e30, -1e30])
def test_a_reference_that_is_nowhere_adds_nothing(number: float) -> None:
    inputs = make(queries=6, seen=1)
    inputs.reference_points_cam[0, :, ::2, 1] = number
    inputs.reference_points_cam[:, :, 1, :, 0] = number
    check(inputs)
    inputs.reference_points_cam.fill_(number)
    assert not op.forward(*inputs, False).any()
    grads = op.backward(torch.ones(1, 6, 16, device=DEVICE), *inputs, False)
    assert not any(grad.any() for grad in grads)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_an_offset_that_leads_nowhere_adds_nothing(number: float) -> None:
    inputs = make(queries=6, seen=1)
    inputs.offsets[:, ::2, :, :, 1] = number
    check(inputs)


def test_a_camera_that_sees_nothing_adds_nothing_even_if_it_is_infinite() -> None:
    inputs = make(cameras=3, queries=9, seen=0.7)
    inputs.visibility[1] = False
    check(inputs)
    inputs.value[:, 1] = float("inf")
    assert op.forward(*inputs, False).isfinite().all()
    grads = op.backward(torch.ones(1, 9, 16, device=DEVICE), *inputs, False)
    assert all(grad.isfinite().all() for grad in grads)
    assert not grads[0][:, 1].any()


def test_a_query_that_its_neighbour_sees_in_another_camera_stays_out_of_it() -> None:
    inputs = make(cameras=2, queries=8, reach=-0.3)
    inputs.visibility.fill_(False)
    inputs.visibility[0, :, ::2, 0] = True
    inputs.visibility[1, :, 1::2, 1] = True
    check(inputs)
    inputs.value[:, 1] = float("inf")
    assert op.forward(*inputs, False)[:, ::2].isfinite().all()


def test_queries_that_no_camera_sees_get_zeros() -> None:
    inputs = make(queries=40, dim=4, points=1, seen=0.9)
    inputs.visibility[:, :, 3:37] = False
    check(inputs)
    assert not op.forward(*inputs, False)[:, 3:37].any()
    _, *grads = op.backward(torch.ones(1, 40, 8, device=DEVICE), *inputs, False)
    assert not any(grad[:, 3:37].any() for grad in grads)


@pytest.mark.parametrize("first_item_visibility", [False, True])
def test_cameras_of_each_item_or_of_the_first(first_item_visibility: bool) -> None:
    inputs = make(batch=3, cameras=4, queries=7, heads=1, seen=0.3)
    check(inputs, first_item_visibility)
    inputs.visibility[:, 0] = False
    assert bool(op.forward(*inputs, first_item_visibility).any()) != first_item_visibility
    check(inputs, first_item_visibility)


@pytest.mark.parametrize("cameras", [1, 6, 16, 17, 40])
def test_any_number_of_cameras(cameras: int) -> None:
    check(make(cameras=cameras, queries=9, heads=1, dim=4, points=1, seen=0.3))


def test_more_cameras_than_a_mask_has_bits_in_16_bits() -> None:
    check(make(cameras=20, queries=4, heads=1, dim=4, seen=0.5, dtype=torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_visibility_in_integers(dtype: torch.dtype) -> None:
    inputs = make()
    integers = inputs.visibility.to(dtype) * (200 if dtype == torch.uint8 else -(2**20))
    check(inputs._replace(visibility=integers))


@pytest.mark.parametrize(("points", "heights"), [(8, 4), (4, 4), (3, 3), (5, 1), (2, 17)])
def test_points_take_turns_at_the_heights(points: int, heights: int) -> None:
    check(make(points=points, heights=heights, queries=3, heads=1, levels=TWO, seen=0.2))


def test_more_logits_than_are_read_at_a_time() -> None:
    check(make(points=35, queries=2, heads=1, dim=4))


def test_logits_of_any_size() -> None:
    inputs = make(points=35, queries=3, heads=1)
    inputs.logits.mul_(30)
    inputs.logits[:, 1, :, :33] = -float("inf")
    check(inputs)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_show_and_touch_nothing_else(number: float) -> None:
    inputs = make(queries=6, reach=1, seen=1)
    inputs.logits[:, 1, :, 1] = number
    out = op.forward(*inputs, False)
    assert out[:, 1].isnan().any()
    assert out[:, [0, 2, 3, 4, 5]].isfinite().all()
    _, grad_offsets, grad_logits = op.backward(torch.ones_like(out), *inputs, False)
    assert grad_logits[:, 1].isnan().all()
    for grad in (grad_offsets, grad_logits):
        assert grad[:, [0, 2, 3, 4, 5]].isfinite().all()
    grad_value, _, _ = op.backward(torch.ones_like(out), *inputs, False, deterministic=True)
    assert not grad_value.isfinite().any()


@pytest.mark.parametrize(
    ("dim", "deterministic"),
    [(4, False), (12, False), (16, False), (32, False), (32, True), (64, False)]
    + [pytest.param(256, deterministic, marks=pytest.mark.slow) for deterministic in (False, True)],
)
def test_head_dimensions(dim: int, deterministic: bool) -> None:
    check(make(dim=dim, batch=2, heads=1, points=1), deterministic=deterministic)


@pytest.mark.parametrize("reference_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("offset_dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtypes_alone_and_mixed(
    dtype: torch.dtype, offset_dtype: torch.dtype, reference_dtype: torch.dtype
) -> None:
    check(
        make(
            levels=TWO,
            heads=1,
            dtype=dtype,
            offset_dtype=offset_dtype,
            reference_dtype=reference_dtype,
        )
    )


def test_deterministic_sums_of_16_bit_values() -> None:
    check(make(dtype=torch.bfloat16, offset_dtype=torch.float32), deterministic=True)


@pytest.mark.parametrize("queries", [1, 31, 33])
def test_blocks_that_are_not_full(queries: int) -> None:
    check(make(queries=queries, batch=2, heads=3, dim=4, points=1, heights=1))


def test_strided_inputs() -> None:
    inputs = make(batch=2, queries=4, levels=TWO)
    strided = Inputs(
        inputs.value.transpose(1, 3).contiguous().transpose(1, 3),
        inputs.spatial_shapes.repeat_interleave(2, 0)[::2],
        inputs.level_start_index.repeat_interleave(2)[::2],
        inputs.offsets.transpose(1, 4).contiguous().transpose(1, 4),
        inputs.logits.transpose(1, 2).contiguous().transpose(1, 2),
        inputs.reference_points_cam.transpose(0, 2).contiguous().transpose(0, 2),
        inputs.visibility.transpose(0, 3).contiguous().transpose(0, 3),
    )
    assert not any(t.is_contiguous() for t in strided)
    check(strided)
    grad_out = torch.ones(1, 1, 1, device=DEVICE).expand(2, 4, 16)
    for actual, expected in zip(
        op.backward(grad_out, *strided, False),
        op.backward(grad_out.contiguous(), *inputs, False),
        strict=True,
    ):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pairs_that_start_between_two_pairs(dtype: torch.dtype) -> None:
    inputs = make(dtype=dtype, reference_dtype=dtype)

    def shifted(pairs: Tensor) -> Tensor:
        pairs = torch.cat((pairs.new_zeros(1), pairs.flatten()))[1:].view(pairs.shape)
        assert pairs.is_contiguous()
        assert pairs.data_ptr() % (2 * pairs.element_size())
        return pairs

    check(
        inputs._replace(
            offsets=shifted(inputs.offsets),
            reference_points_cam=shifted(inputs.reference_points_cam),
        )
    )


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("empty", ["batch", "queries", "points"])
def test_nothing_to_do(empty: str, deterministic: bool) -> None:
    check(make(**{empty: 0}), deterministic=deterministic)


def test_many_samples_on_one_pixel_keep_their_sum_in_16_bits() -> None:
    inputs = make(
        queries=512,
        points=1,
        heights=1,
        heads=1,
        dim=4,
        levels=((1, 1),),
        dtype=torch.bfloat16,
        seen=1,
    )
    inputs.reference_points_cam.fill_(0.5)
    inputs.offsets.fill_(0)
    grad_value, _, _ = op.backward(torch.ones(1, 512, 4, device=DEVICE), *inputs, False)
    torch.testing.assert_close(grad_value, torch.full_like(grad_value, 256))


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e15])
def test_deterministic_sums_hold_at_any_scale(scale: float) -> None:
    inputs = make(queries=20, heads=1, levels=((2, 2),))
    grad_out = torch.randn(1, 20, 8, device=DEVICE) * scale
    expected, _, _ = op.backward(grad_out, *inputs, False)
    actual, _, _ = op.backward(grad_out, *inputs, False, deterministic=True)
    torch.testing.assert_close(actual / scale, expected / scale, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_a_gradient_that_is_not_finite_stays_visible_when_deterministic(number: float) -> None:
    inputs = make()
    grad_out = torch.ones(1, 5, 16, device=DEVICE)
    grad_out[0, 0, 0] = number
    grad_value, _, _ = op.backward(grad_out, *inputs, False, deterministic=True)
    assert not grad_value.isfinite().any()


def test_deterministic_sums_do_not_depend_on_the_order_of_queries() -> None:
    inputs = make(queries=32, heads=1, levels=((2, 2),))
    grad_out = torch.randn(1, 32, 8, device=DEVICE)
    first, _, _ = op.backward(grad_out, *inputs, False, deterministic=True)
    order = torch.randperm(32, device=DEVICE)
    shuffled = inputs._replace(
        offsets=inputs.offsets[:, order],
        logits=inputs.logits[:, order],
        reference_points_cam=inputs.reference_points_cam[:, :, order],
        visibility=inputs.visibility[:, :, order],
    )
    second, _, _ = op.backward(grad_out[:, order], *shuffled, False, deterministic=True)
    assert torch.equal(first, second)


def test_a_dtype_that_is_not_computed_in_is_named() -> None:
    inputs = make(dtype=torch.float64)
    with pytest.raises(TypeError, match="float16, bfloat16, float32, not float64"):
        op.forward(*inputs, False)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_a_cuda_graph_replays_on_new_inputs() -> None:
    inputs = make(levels=FOUR, queries=50)
    op.forward(*inputs, False)  # compiles outside of the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = op.forward(*inputs, False)
    for tensor, fresh in zip(inputs[3:], make(levels=FOUR, queries=50)[3:], strict=True):
        tensor.copy_(fresh)
    graph.replay()
    torch.testing.assert_close(out, op.forward(*inputs, False))


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_tuning_saves_sizes_that_are_used(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sizes.json"
    monkeypatch.setenv("TURBO_PHYSAI_TRITON_SIZES", str(path))
    inputs = make(levels=FOUR, queries=50, dim=32)
    times = op.tune(*inputs)
    assert op.size_for("forward", inputs[0]) == min(times["forward"], key=times["forward"].get)
    check(inputs)
