"""What the Triton kernels of temporal_self_attention compute, against autograd in float64.

`test_temporal_self_attention_triton.py` starts it (see `triton_checks`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from triton_checks import DEVICE, FOUR, ONE, TWO, close, levels_of, poisoned, sample
from turbo_physai.kernels.ops import temporal_self_attention_triton as op

__all__ = ["poisoned"]


class Inputs(NamedTuple):
    value: Tensor
    spatial_shapes: Tensor
    level_start_index: Tensor
    offsets: Tensor
    logits: Tensor
    reference_points: Tensor


def pixels(inputs: Inputs) -> Tensor:
    """(B, Q, H, T, L, P, 2)."""
    batch, queries, _, queue, levels, _, _ = inputs.offsets.shape
    references = inputs.reference_points.double().view(batch, queue, queries, levels, 2)
    sizes = inputs.spatial_shapes.flip(1)[:, None]
    return references.transpose(1, 2)[:, :, None, :, :, None] * sizes + inputs.offsets - 0.5


def reference(inputs: Inputs) -> Tensor:
    """The definition, entry by entry."""
    value, shapes, starts, offsets, logits, _ = inputs
    weights = logits.softmax(-1).view(offsets.shape[:-1])
    queue = offsets.shape[3]
    places = pixels(inputs)
    return torch.stack(
        [
            sample(
                value[entry::queue], shapes, starts, places[:, :, :, entry], weights[:, :, :, entry]
            )
            for entry in range(queue)
        ]
    ).mean(0)


def make(
    *,
    levels: tuple[tuple[int, int], ...] = ONE,
    batch: int = 1,
    queue: int = 2,
    queries: int = 5,
    heads: int = 2,
    dim: int = 8,
    points: int = 2,
    reach: float = 0.3,
    dtype: torch.dtype = torch.float32,
    offset_dtype: torch.dtype | None = None,
    reference_dtype: torch.dtype = torch.float32,
) -> Inputs:
    """Fresh inputs; references lie up to `reach` outside of the levels (negative: inside).

    Offsets are drawn again where a sample would lie where slopes jump, and rounding decides.
    """
    shapes, starts, keys = levels_of(levels)
    other = offset_dtype or dtype
    references = torch.rand(batch * queue, queries, len(levels), 2) * (1 + 2 * reach) - reach
    inputs = Inputs(
        torch.randn(batch * queue, keys, heads, dim).to(DEVICE, dtype),
        shapes,
        starts,
        torch.zeros(batch, queries, heads, queue, len(levels), points, 2).to(DEVICE, other),
        (3 * torch.randn(batch, queries, heads, queue, len(levels) * points)).to(DEVICE, other),
        references.to(DEVICE, reference_dtype),
    )
    again = torch.ones_like(inputs.offsets, dtype=torch.bool)
    while again.any():
        fresh = 2 * torch.randn(again.shape).to(DEVICE)
        inputs.offsets.copy_(torch.where(again, fresh, inputs.offsets))
        places = pixels(inputs)
        again = (places - places.round()).abs() < 1e-3
    return inputs


def check(inputs: Inputs, *, deterministic: bool = False) -> None:
    """Output and gradients are those of the reference, within the rounding of each dtype."""
    wide = Inputs(*(t.detach().double() if t.is_floating_point() else t for t in inputs))
    wanted = [t.requires_grad_() for t in (wide.value, wide.offsets, wide.logits)]
    expected = reference(wide)
    grad_out = torch.randn(expected.shape, device=DEVICE).to(inputs.value.dtype)
    expected_grads = torch.autograd.grad(expected, wanted, grad_out.double())

    close(op.forward(*inputs), expected, inputs.value.dtype)
    grads = op.backward(grad_out, *inputs, deterministic=deterministic)
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
    inputs = make(queries=6)
    inputs.reference_points[0, ::2] = number
    inputs.reference_points[:, 1, :, 0] = number
    check(inputs)
    inputs.reference_points.fill_(number)
    assert not op.forward(*inputs).any()
    grads = op.backward(torch.ones(1, 6, 16, device=DEVICE), *inputs)
    assert not any(grad.any() for grad in grads)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_an_offset_that_leads_nowhere_adds_nothing(number: float) -> None:
    inputs = make(queries=6)
    inputs.offsets[:, ::2, :, :, :, 1] = number
    check(inputs)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("queue", [1, 2, 3])
def test_entries_of_every_item_have_values_references_and_a_softmax_of_their_own(
    queue: int, batch: int
) -> None:
    check(make(batch=batch, queue=queue, queries=7, heads=1, dim=4))


def test_more_logits_than_are_read_at_a_time() -> None:
    check(make(points=35, queries=2, heads=1, dim=4))


def test_logits_of_any_size() -> None:
    inputs = make(points=35, queries=3, heads=1)
    inputs.logits.mul_(30)
    inputs.logits[:, 1, :, :, :33] = -float("inf")
    check(inputs)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_show_and_touch_nothing_else(number: float) -> None:
    inputs = make(queries=6, reach=1)
    inputs.logits[:, 1, :, 1, 1] = number
    out = op.forward(*inputs)
    others = [0, 2, 3, 4, 5]
    assert out[:, 1].isnan().any()
    assert out[:, others].isfinite().all()
    _, grad_offsets, grad_logits = op.backward(torch.ones_like(out), *inputs)
    assert grad_logits[:, 1, :, 1].isnan().all()
    assert grad_logits[:, 1, :, 0].isfinite().all()
    assert all(grad[:, others].isfinite().all() for grad in (grad_offsets, grad_logits))
    grad_value, _, _ = op.backward(torch.ones_like(out), *inputs, deterministic=True)
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
    check(make(queries=queries, batch=2, heads=3, dim=4, points=1))


def test_strided_inputs() -> None:
    inputs = make(batch=2, queries=4, levels=TWO)
    strided = Inputs(
        inputs.value.transpose(1, 2).contiguous().transpose(1, 2),
        inputs.spatial_shapes.repeat_interleave(2, 0)[::2],
        inputs.level_start_index.repeat_interleave(2)[::2],
        inputs.offsets.transpose(1, 4).contiguous().transpose(1, 4),
        inputs.logits.transpose(1, 2).contiguous().transpose(1, 2),
        inputs.reference_points.transpose(0, 2).contiguous().transpose(0, 2),
    )
    assert not any(t.is_contiguous() for t in strided)
    check(strided)
    grad_out = torch.ones(1, 1, 1, device=DEVICE).expand(2, 4, 16)
    for actual, expected in zip(
        op.backward(grad_out, *strided),
        op.backward(grad_out.contiguous(), *inputs),
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
            reference_points=shifted(inputs.reference_points),
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
        heads=1,
        dim=4,
        levels=((1, 1),),
        dtype=torch.bfloat16,
    )
    inputs.reference_points.fill_(0.5)
    inputs.offsets.fill_(0)
    grad_value, _, _ = op.backward(torch.ones(1, 512, 4, device=DEVICE), *inputs)
    torch.testing.assert_close(grad_value, torch.full_like(grad_value, 256))


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e15])
def test_deterministic_sums_hold_at_any_scale(scale: float) -> None:
    inputs = make(queries=20, heads=1, levels=((2, 2),))
    grad_out = torch.randn(1, 20, 8, device=DEVICE) * scale
    expected, _, _ = op.backward(grad_out, *inputs)
    actual, _, _ = op.backward(grad_out, *inputs, deterministic=True)
    torch.testing.assert_close(actual / scale, expected / scale, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_a_gradient_that_is_not_finite_stays_visible_when_deterministic(number: float) -> None:
    inputs = make()
    grad_out = torch.ones(1, 5, 16, device=DEVICE)
    grad_out[0, 0, 0] = number
    grad_value, _, _ = op.backward(grad_out, *inputs, deterministic=True)
    assert not grad_value.isfinite().any()


def test_deterministic_sums_do_not_depend_on_the_order_of_queries() -> None:
    inputs = make(queries=32, heads=1, levels=((2, 2),))
    grad_out = torch.randn(1, 32, 8, device=DEVICE)
    first, _, _ = op.backward(grad_out, *inputs, deterministic=True)
    order = torch.randperm(32, device=DEVICE)
    shuffled = inputs._replace(
        offsets=inputs.offsets[:, order],
        logits=inputs.logits[:, order],
        reference_points=inputs.reference_points[:, order],
    )
    second, _, _ = op.backward(grad_out[:, order], *shuffled, deterministic=True)
    assert torch.equal(first, second)


def test_a_dtype_that_is_not_computed_in_is_named() -> None:
    inputs = make(dtype=torch.float64)
    with pytest.raises(TypeError, match="float16, bfloat16, float32, not float64"):
        op.forward(*inputs)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_a_cuda_graph_replays_on_new_inputs() -> None:
    inputs = make(levels=FOUR, queries=50)
    op.forward(*inputs)  # compiles outside of the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = op.forward(*inputs)
    for tensor, fresh in zip(inputs[3:], make(levels=FOUR, queries=50)[3:], strict=True):
        tensor.copy_(fresh)
    graph.replay()
    torch.testing.assert_close(out, op.forward(*inputs))


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_tuning_saves_sizes_that_are_used(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sizes.json"
    monkeypatch.setenv("TURBO_PHYSAI_TRITON_SIZES", str(path))
    inputs = make(levels=FOUR, queries=50, dim=32)
    times = op.tune(*inputs)
    assert op.size_for("forward", inputs[0]) == min(times["forward"], key=times["forward"].get)
    check(inputs)
