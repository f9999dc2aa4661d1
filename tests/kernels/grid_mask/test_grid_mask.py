"""grid_mask gives the published bits, and leaves NumPy's generator where the published one does."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from turbo_physai.kernels import grid_mask
from turbo_physai.kernels.ops.grid_mask import Grid, bench, draw_grid, kept_pixels

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def painted(grid: Grid, height: int, width: int, use_h: bool, use_w: bool) -> np.ndarray:
    """The mask as published: stripes in a canvas of NumPy's, turned by Pillow, its middle."""
    canvas = np.ones((int(1.5 * height), int(1.5 * width)), np.uint8)
    if use_h:
        for i in range(canvas.shape[0] // grid.period):
            canvas[i * grid.period + grid.first_row :][: grid.stripe] = 0
    if use_w:
        for i in range(canvas.shape[1] // grid.period):
            canvas[:, i * grid.period + grid.first_column :][:, : grid.stripe] = 0
    turned = np.asarray(Image.fromarray(canvas).rotate(grid.angle))
    top, left = (canvas.shape[0] - height) // 2, (canvas.shape[1] - width) // 2
    return turned[top : top + height, left : left + width].copy()


def definition(x, *, use_h, use_w, rotate=1, offset=False, ratio=0.5, mode=0) -> Tensor:
    height, width = x.shape[2:]
    period = np.random.randint(2, height)
    stripe = min(max(int(period * ratio + 0.5), 1), period - 1)
    first_row = np.random.randint(period)
    first_column = np.random.randint(period)
    grid = Grid(period, stripe, first_row, first_column, np.random.randint(rotate))
    mask = torch.from_numpy(painted(grid, height, width, use_h, use_w)).to(x.dtype)
    if mode == 1:
        mask = 1 - mask
    if offset:
        noise = torch.from_numpy(2 * (np.random.rand(height, width) - 0.5)).to(x.dtype)
        return x * mask + noise * (1 - mask)
    return x * mask


def arguments() -> dict[str, object]:
    return {
        "use_h": random.random() < 0.8,
        "use_w": random.random() < 0.8,
        "rotate": random.choice([1, 1, 2, 46, 360, 1000]),
        "offset": random.random() < 0.4,
        "ratio": random.choice([0.5, random.random(), 0.0, 1.0]),
        "mode": random.choice([0, 1, 2]),
    }


@pytest.mark.parametrize("dtype", FLOATS)
def test_bits_and_random_numbers_are_those_of_the_definition(dtype):
    for _ in range(150):
        height, width = random.randint(3, 90), random.randint(1, 90)
        x = torch.randn(2, 3, height, width).to(dtype)
        chosen = arguments()
        before = np.random.get_state()
        masked = grid_mask(x, **chosen)
        after = np.random.get_state()
        np.random.set_state(before)
        wanted = definition(x, **chosen)
        assert masked.dtype == dtype
        assert torch.equal(masked, wanted), (chosen, height, width)
        expected = np.random.get_state()
        assert after[2] == expected[2]
        np.testing.assert_array_equal(after[1], expected[1])


@pytest.mark.parametrize(
    "size", [(60, 60), (61, 61), (37, 80), (80, 36), (3, 1), (90, 160)], ids=str
)
def test_a_grid_turned_by_any_angle_is_the_one_that_pillow_turns(size):
    for angle in range(0, 720, 1 if max(size) < 90 else 5):
        grid = draw_grid(size[0])._replace(angle=angle)
        kept = kept_pixels(grid, *size, use_h=True, use_w=True)
        assert np.array_equal(kept.numpy(), painted(grid, *size, True, True)), grid


@pytest.mark.slow
@pytest.mark.parametrize("size", [(928, 1600), (900, 1600), (1080, 1920)], ids=str)
def test_images_of_real_size_are_masked_as_published(size):
    for angle in (0, 0, 1, 30, 45, 90, 137, 180, 270, 359):
        grid = draw_grid(size[0])._replace(angle=angle)
        kept = kept_pixels(grid, *size, use_h=True, use_w=True)
        assert np.array_equal(kept.numpy(), painted(grid, *size, True, True)), grid


def test_without_stripes_everything_is_kept_and_the_numbers_are_drawn_all_the_same():
    x = torch.randn(1, 3, 20, 30)
    before = np.random.get_state()
    assert torch.equal(grid_mask(x, use_h=False, use_w=False), x)
    after = np.random.get_state()
    np.random.set_state(before)
    definition(x, use_h=False, use_w=False)
    assert after[2] == np.random.get_state()[2] != before[2]


def test_the_memory_format_is_kept():
    x = torch.randn(2, 3, 40, 60).to(memory_format=torch.channels_last)
    for offset in (False, True):
        masked = grid_mask(x, use_h=True, use_w=True, offset=offset)
        assert masked.is_contiguous(memory_format=torch.channels_last)


def test_the_gradient_passes_where_pixels_are_kept():
    x = torch.randn(2, 3, 40, 60, requires_grad=True)
    grad = torch.randn_like(x)
    for offset in (False, True):
        state = np.random.get_state()
        masked = grid_mask(x, use_h=True, use_w=True, rotate=30, offset=offset)
        (found,) = torch.autograd.grad(masked, x, grad)
        np.random.set_state(state)
        grid = draw_grid(40, rotate=30)
        kept = kept_pixels(grid, 40, 60, use_h=True, use_w=True)
        assert 0 < kept.float().mean() < 1
        assert torch.equal(found, grad * kept)


def test_a_blank_over_an_infinite_pixel_is_nan_as_in_the_definition():
    x = torch.full((1, 1, 30, 30), torch.inf)
    x[..., ::2] = torch.nan
    state = np.random.get_state()
    masked = grid_mask(x, use_h=True, use_w=True)
    np.random.set_state(state)
    wanted = definition(x, use_h=True, use_w=True)
    torch.testing.assert_close(masked, wanted, rtol=0, atol=0, equal_nan=True)


def test_no_tensor_is_read_on_the_host():
    """Tensors of the meta device have no numbers: whoever reads one fails."""
    x = torch.empty(2, 3, 90, 160, device="meta")
    for rotate in (1, 360):
        assert grid_mask(x, use_h=True, use_w=True, rotate=rotate).device.type == "meta"


def test_no_mask_is_copied_from_the_host():
    class Devices(TorchDispatchMode):
        """Every operator's inputs lie on the meta device."""

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            for argument in args:
                if isinstance(argument, Tensor):
                    assert argument.device.type == "meta", function
            return function(*args, **(kwargs or {}))

    x = torch.empty(2, 3, 90, 160, device="meta")
    with Devices():
        grid_mask(x, use_h=True, use_w=True, rotate=360)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_is_not_waited_for_and_gives_the_same_bits():
    x = torch.randn(2, 3, 90, 160)
    on_gpu = x.cuda()
    for rotate in (1, 360):
        state = np.random.get_state()
        torch.cuda.set_sync_debug_mode("error")
        try:
            masked = grid_mask(on_gpu, use_h=True, use_w=True, rotate=rotate)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        np.random.set_state(state)
        assert torch.equal(masked.cpu(), definition(x, use_h=True, use_w=True, rotate=rotate))


def test_the_mask_compiles_without_a_graph_break():
    def masked(x, grid):
        return x * kept_pixels(grid, *x.shape[2:], use_h=True, use_w=True, device=x.device)

    compiled = torch.compile(masked, fullgraph=True, backend="aot_eager")
    x = torch.randn(1, 3, 20, 30)
    for angle in (0, 30):
        grid = Grid(7, 3, 2, 5, angle)
        assert torch.equal(compiled(x, grid), masked(x, grid))


class Mask(torch.nn.Module):
    """A mask by all means, with the given options."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, x):
        return grid_mask(x, use_h=True, use_w=True, **self.options)


@pytest.mark.parametrize("options", [{}, {"rotate": 30, "offset": True, "mode": 1}], ids=str)
@pytest.mark.parametrize("way", ["exported", "compiled"])
def test_a_compiled_program_draws_whenever_it_runs_and_as_the_function_does(way, options):
    mask, x = Mask(**options), torch.randn(2, 3, 40, 60)
    if way == "exported":
        compiled = torch.export.export(mask, (x,)).module()
    else:
        compiled = torch.compile(mask, fullgraph=True, backend="aot_eager")
    for _ in range(3):
        state = np.random.get_state()
        found = compiled(x)
        after = np.random.get_state()[2]
        np.random.set_state(state)
        assert torch.equal(found, mask(x))
        assert np.random.get_state()[2] == after


def test_a_compiled_mask_is_drawn_twice_where_it_is_called_twice():
    mask = Mask()

    def twice(x):
        return mask(x), mask(x)

    x = torch.ones(1, 3, 40, 60)
    for _ in range(5):
        first, second = torch.compile(twice, fullgraph=True, backend="aot_eager")(x)
        if not torch.equal(first, second):
            return
    raise AssertionError("drawn once for both")


def test_a_compiled_mask_has_the_gradient_of_what_it_kept():
    x = torch.randn(1, 3, 40, 60, requires_grad=True)
    out = torch.compile(Mask(), fullgraph=True, backend="aot_eager")(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(x * grad, out)


@pytest.mark.parametrize(
    ("x", "keywords", "error", "message"),
    [
        (torch.ones(3, 20, 30), {}, ValueError, r"x must be \(N, C, H, W\), not \(3, 20, 30\)"),
        (torch.ones(1, 3, 20, 30).int(), {}, TypeError, "x must be floating-point, not int32"),
        (torch.ones(1, 3, 2, 30), {}, ValueError, "height of the images must be at least 3, not 2"),
        (torch.ones(1, 3, 20, 30), {"rotate": 0}, ValueError, "rotate must be at least 1, not 0"),
    ],
)
def test_a_mistake_is_told_before_a_number_is_drawn(x, keywords, error, message):
    before = np.random.get_state()
    with pytest.raises(error, match=message):
        grid_mask(x, use_h=True, use_w=True, **keywords)
    assert np.random.get_state()[2] == before[2]


def test_the_benchmark_compares_with_the_operator():
    x = torch.randn(2, 3, 40, 60)
    for _ in range(10):
        state = np.random.get_state()
        wanted = bench.numpy_reference(x)
        np.random.set_state(state)
        assert torch.equal(bench.turbo_physai(x), wanted)
