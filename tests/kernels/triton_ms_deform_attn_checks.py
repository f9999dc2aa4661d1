"""What the Triton kernels of ms_deform_attn compute, against autograd in float64.

`test_ms_deform_attn_triton.py` starts it (see `triton_checks`).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from triton_checks import DEVICE, FOUR, ONE, TWO, close, levels_of, poisoned, sample
from turbo_physai.kernels.ops import ms_deform_attn_triton as op

__all__ = ["poisoned"]


def reference(
    value: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor, weights: Tensor
) -> Tensor:
    """The definition."""
    pixels = locations * shapes.flip(1)[:, None] - 0.5
    return sample(value, shapes, starts, pixels, weights)


def make(
    *,
    levels: tuple[tuple[int, int], ...] = ONE,
    batch: int = 1,
    queries: int = 5,
    heads: int = 2,
    dim: int = 8,
    points: int = 2,
    reach: float = 0.3,
    dtype: torch.dtype = torch.float32,
    location_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Fresh inputs; locations lie up to `reach` outside of the levels (negative: inside)."""
    shapes, starts, keys = levels_of(levels)
    samples = (batch, queries, heads, len(levels), points)
    other = location_dtype or dtype
    return (
        torch.randn(batch, keys, heads, dim).to(DEVICE, dtype),
        shapes,
        starts,
        (torch.rand(*samples, 2) * (1 + 2 * reach) - reach).to(DEVICE, other),
        torch.rand(samples).to(DEVICE, other),
    )


def check(inputs: tuple[Tensor, ...], *, deterministic: bool = False) -> None:
    """Output and gradients are those of the reference, within the rounding of each dtype."""
    value, shapes, starts, locations, weights = inputs
    exact = [t.detach().double().requires_grad_() for t in (value, locations, weights)]
    expected = reference(exact[0], shapes, starts, *exact[1:])
    grad_out = torch.randn(expected.shape, device=DEVICE).to(value.dtype)
    expected_grads = torch.autograd.grad(expected, exact, grad_out.double())

    out = op.forward(*inputs)
    grads = op.backward(grad_out, *inputs, deterministic=deterministic)
    close(out, expected, value.dtype)
    for grad, expected_grad, tensor in zip(
        grads, expected_grads, (value, locations, weights), strict=True
    ):
        assert grad.shape == tensor.shape
        close(grad, expected_grad, tensor.dtype)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("levels", [ONE, FOUR])
@pytest.mark.parametrize("reach", [-0.2, 0.3, 20.0])
def test_inside_on_the_border_and_far_outside(
    levels: tuple[tuple[int, int], ...], reach: float, deterministic: bool
) -> None:
    inputs = make(levels=levels, reach=reach, batch=2, heads=1)
    check(inputs, deterministic=deterministic)


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan"), 1e30, -1e30])
def test_a_location_that_is_nowhere_adds_nothing(number: float) -> None:
    inputs = make(queries=6)
    inputs[3][:, ::2, :, :, 1] = number
    inputs[3][:, 1, :, :, :, 0] = number
    check(inputs)
    _, *grads = op.backward(torch.ones(1, 6, 16, device=DEVICE), *inputs)
    assert not any(grad[:, ::2, :, :, 1].any() for grad in grads)


def test_a_border_that_is_infinite_does_not_reach_samples_outside() -> None:
    inputs = make(levels=((4, 4),), points=1, queries=8)
    inputs[0].fill_(float("inf"))
    inputs[3].fill_(1.5)
    assert not op.forward(*inputs).any()


def test_a_weight_of_nan_shows_and_reads_and_adds_nothing_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs = make(levels=((4, 4),), points=1, queries=8, heads=1)
    inputs[3].fill_(-1.0)
    inputs[4].fill_(float("nan"))
    room = torch.zeros(3, 16, 8, device=DEVICE)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: room[1:2].unsqueeze(2))
    assert op.forward(*inputs).isnan().all()
    op.backward(torch.ones(1, 8, 8, device=DEVICE), *inputs)
    assert not room.any()


@pytest.mark.parametrize(
    ("dim", "deterministic"),
    [(4, False), (12, False), (16, False), (32, False), (32, True), (64, False)]
    + [pytest.param(256, deterministic, marks=pytest.mark.slow) for deterministic in (False, True)],
)
def test_head_dimensions(dim: int, deterministic: bool) -> None:
    check(make(dim=dim, batch=2, queries=5, points=1), deterministic=deterministic)


@pytest.mark.parametrize("location_dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtypes_alone_and_mixed(dtype: torch.dtype, location_dtype: torch.dtype) -> None:
    check(make(levels=TWO, heads=1, dtype=dtype, location_dtype=location_dtype))


def test_deterministic_sums_of_16_bit_values() -> None:
    check(make(dtype=torch.bfloat16, location_dtype=torch.float32), deterministic=True)


@pytest.mark.parametrize("queries", [1, 31, 33])
def test_blocks_that_are_not_full(queries: int) -> None:
    check(make(queries=queries, batch=3, heads=3, dim=4, points=1))


def test_strided_inputs() -> None:
    value, shapes, starts, locations, weights = make(batch=2, queries=4, levels=TWO)
    strided = (
        value.transpose(1, 2).contiguous().transpose(1, 2),
        shapes.repeat_interleave(2, 0)[::2],
        starts.repeat_interleave(2)[::2],
        locations.transpose(1, 4).contiguous().transpose(1, 4),
        weights.flip(1).expand(2, -1, -1, -1, -1),
    )
    assert not any(t.is_contiguous() for t in strided[:4])
    check(strided)
    grad_out = torch.ones(1, 1, 1, device=DEVICE).expand(2, 4, 16)
    for actual, expected in zip(
        op.backward(grad_out, *strided),
        op.backward(grad_out.contiguous(), *(t.contiguous() for t in strided)),
        strict=True,
    ):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_locations_that_start_between_two_pairs(dtype: torch.dtype) -> None:
    value, shapes, starts, locations, weights = make(dtype=dtype)
    shifted = torch.cat((locations.new_zeros(1), locations.flatten()))[1:].view(locations.shape)
    assert shifted.is_contiguous()
    assert shifted.data_ptr() % (2 * shifted.element_size())
    check((value, shapes, starts, shifted, weights))


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("empty", ["batch", "queries", "points"])
def test_nothing_to_do(empty: str, deterministic: bool) -> None:
    check(make(**{empty: 0}), deterministic=deterministic)


def test_many_samples_on_one_pixel_keep_their_sum_in_16_bits() -> None:
    inputs = make(queries=64, points=8, heads=1, dim=4, levels=((1, 1),), dtype=torch.bfloat16)
    inputs[3].fill_(0.5)
    inputs[4].fill_(1.0)
    grad_value, _, _ = op.backward(torch.ones(1, 64, 4, device=DEVICE), *inputs)
    torch.testing.assert_close(grad_value, torch.full_like(grad_value, 512))


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
    inputs = list(make(queries=32, heads=1, levels=((2, 2),)))
    grad_out = torch.randn(1, 32, 8, device=DEVICE)
    first, _, _ = op.backward(grad_out, *inputs, deterministic=True)
    order = torch.randperm(32, device=DEVICE)
    inputs[3:] = [tensor[:, order] for tensor in inputs[3:]]
    second, _, _ = op.backward(grad_out[:, order], *inputs, deterministic=True)
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
    inputs[3].copy_(make(levels=FOUR, queries=50)[3])
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
