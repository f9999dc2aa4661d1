"""GridMask draws its random numbers in the official order and blanks a grid."""

import numpy as np
import pytest
import torch
from projects.mmdet3d_plugin.models.utils.grid_mask import GridMask

HEIGHT, WIDTH = 24, 40


@pytest.fixture
def draws(monkeypatch):
    """Record the calls to NumPy's global generator."""
    calls = []
    for name in ("rand", "randint"):
        original = getattr(np.random, name)

        def record(*args, name=name, original=original):
            result = original(*args)
            calls.append((name, args, result))
            return result

        monkeypatch.setattr(np.random, name, record)
    return calls


def test_the_random_order_is_rand_period_two_starts_rotation(draws):
    GridMask(True, True, rotate=7, ratio=0.5, mode=1, prob=1.0).train()(torch.ones(1, 3, 24, 40))
    period = draws[1][2]
    assert [(name, args) for name, args, _ in draws] == [
        ("rand", ()),
        ("randint", (2, HEIGHT)),
        ("randint", (period,)),
        ("randint", (period,)),
        ("randint", (7,)),
    ]


def test_only_the_coin_is_drawn_when_nothing_is_masked(draws):
    images = torch.rand(2, 3, HEIGHT, WIDTH)
    assert GridMask(True, True, prob=1.0).eval()(images) is images
    assert GridMask(True, True, prob=-1.0).train()(images) is images
    assert [name for name, _, _ in draws] == ["rand", "rand"]


@pytest.mark.parametrize("mode", [0, 1])
def test_one_grid_blanks_every_image(mode, draws):
    mask = GridMask(True, True, ratio=0.5, mode=mode, prob=1.0).train()
    result = mask(torch.ones(4, 3, HEIGHT, WIDTH))
    (_, _, period), (_, _, top), (_, _, left) = draws[1:4]
    stripe = min(max(int(period * 0.5 + 0.5), 1), period - 1)

    def striped(length, first):
        canvas = int(1.5 * length)
        cells = np.ones(canvas)
        for start in range(first, first + period * (canvas // period), period):
            cells[start : start + stripe] = 0
        return cells[(canvas - length) // 2 :][:length]

    kept = np.outer(striped(HEIGHT, top), striped(WIDTH, left))
    expected = torch.from_numpy(1 - kept if mode else kept).float()
    torch.testing.assert_close(result, expected.expand_as(result))


def test_offset_fills_the_blanks_with_noise():
    mask = GridMask(True, True, ratio=0.5, offset=True, prob=1.0).train()
    result = mask(torch.full((2, 3, HEIGHT, WIDTH), 5.0))
    blank = result != 5
    assert blank.any()
    assert result[blank].abs().max() <= 1
    torch.testing.assert_close(result[0], result[1])


def test_the_probability_grows_with_the_epochs():
    mask = GridMask(True, True, prob=0.8)
    mask.set_prob(3, 12)
    assert mask.prob == pytest.approx(0.2)
