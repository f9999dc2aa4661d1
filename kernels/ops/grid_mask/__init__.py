"""GridMask: blank a regular grid of stripes or squares, the same one in every image of a batch.

Source: Chen et al., "GridMask Data Augmentation", arXiv 2001.04086, as BEVFormer applies it. The
grid has a period of d pixels; of each whole period in a canvas half as large again as the image,
`stripe` pixels from the first one on are blank. The canvas is turned about its centre, and the
image sees its middle.

A grid is a handful of integers. NumPy draws them on the host, in the usual order and from its
global generator; the mask is then made where the images are. Nothing is copied to a device and no
device is waited for, except for the noise of `offset`, which NumPy draws too. Compiled and exported
programs draw whenever they run.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..._operator import register_draw

_FIXED = 16  # fractional bits


class Grid(NamedTuple):
    """A grid as drawn, in pixels and degrees."""

    period: int
    stripe: int
    """Blank pixels in a period."""
    first_row: int
    first_column: int
    """Where the first blank stripes start in the canvas."""
    angle: int


def grid_mask(
    x: Tensor,
    *,
    use_h: bool,
    use_w: bool,
    rotate: int = 1,
    offset: bool = False,
    ratio: float = 0.5,
    mode: int = 0,
) -> Tensor:
    """Multiply images by a freshly drawn mask; the gradient passes through where they are kept.

    Whether to mask at all is the caller's to decide, and to draw: `numpy.random.rand()` comes
    before the numbers that are drawn here (see `draw_grid`; then, with `offset`,
    `rand(height, width)`).

    Args:
        x: (N, C, H, W), any floating-point dtype and memory format; H at least 3.
        use_h: draw horizontal stripes.
        use_w: draw vertical stripes.
        rotate: turn the grid by a whole number of degrees below this one.
        offset: fill the blanks with noise, uniform in -1 to 1, instead of zeros.
        ratio: width of a stripe as a part of the grid's period.
        mode: 1 blanks all but the stripes; any other number blanks the stripes.

    Returns:
        (N, C, H, W) in the dtype and memory format of `x`.

    Raises:
        ValueError: another shape, too low an image, or `rotate` below 1.
        TypeError: another dtype.
    """
    if x.dim() != 4:
        raise ValueError(f"x must be (N, C, H, W), not {tuple(x.shape)}")
    if not x.is_floating_point():
        raise TypeError(f"x must be floating-point, not {str(x.dtype)[6:]}")
    # A compiler would keep the numbers that it sees drawn while it traces.
    draw = _draw_operator if torch.compiler.is_compiling() else _draw
    kept, noise = draw(x, use_h, use_w, rotate, offset, ratio)
    mask = (~kept if mode == 1 else kept).to(x.dtype)
    return x * mask + noise * (1 - mask) if offset else x * mask


def _draw(
    x: Tensor, use_h: bool, use_w: bool, rotate: int, offset: bool, ratio: float
) -> tuple[Tensor, Tensor]:
    """Where pixels are kept, (H, W) bool, and the noise, (H, W) or nothing in the dtype of x."""
    height, width = x.shape[2:]
    grid = draw_grid(height, rotate=rotate, ratio=ratio)
    kept = kept_pixels(grid, height, width, use_h=use_h, use_w=use_w, device=x.device)
    if not offset:
        return kept, x.new_empty(0)
    import numpy as np  # a dependency of whoever calls this, not of the package

    noise = torch.from_numpy(2 * (np.random.rand(height, width) - 0.5))
    return kept, noise.to(x.dtype).to(x.device)


def _drawn(
    x: Tensor, use_h: bool, use_w: bool, rotate: int, offset: bool, ratio: float
) -> tuple[Tensor, Tensor]:
    """Tensors like those of `_draw`."""
    kept = x.new_empty(x.shape[2:], dtype=torch.bool)
    return kept, x.new_empty(x.shape[2:] if offset else (0,))


_draw_operator = register_draw(
    "draw_grid_mask",
    "(Tensor x, bool use_h, bool use_w, int rotate, bool offset, float ratio) -> (Tensor, Tensor)",
    _draw,
    _drawn,
)


def draw_grid(height: int, *, rotate: int = 1, ratio: float = 0.5) -> Grid:
    """Draw a grid for images of `height` rows from NumPy's global generator.

    Calls `randint(2, height)` for the period, `randint(period)` for the first row and again for the
    first column, and `randint(rotate)` for the angle, in this order.
    """
    import numpy as np

    if height < 3:
        raise ValueError(f"the height of the images must be at least 3, not {height}")
    if rotate < 1:
        raise ValueError(f"rotate must be at least 1, not {rotate}")
    period = int(np.random.randint(2, height))
    stripe = min(max(int(period * ratio + 0.5), 1), period - 1)
    first_row, first_column = int(np.random.randint(period)), int(np.random.randint(period))
    return Grid(period, stripe, first_row, first_column, int(np.random.randint(rotate)))


def kept_pixels(
    grid: Grid,
    height: int,
    width: int,
    *,
    use_h: bool,
    use_w: bool,
    device: torch.device | str | None = None,
) -> Tensor:
    """Where `mode` 0 keeps the pixels of an image: (height, width) bool, on the device."""
    canvas_height, canvas_width = int(1.5 * height), int(1.5 * width)
    rows = torch.arange(height, device=device)[:, None] + (canvas_height - height) // 2
    columns = torch.arange(width, device=device) + (canvas_width - width) // 2
    turned = grid.angle % 360 != 0
    if turned:
        rows, columns = _turned(grid.angle, canvas_height, canvas_width, rows, columns)
    kept = _kept(rows, grid.first_row if use_h else None, grid, canvas_height) & _kept(
        columns, grid.first_column if use_w else None, grid, canvas_width
    )
    if turned:
        kept &= (rows >= 0) & (rows < canvas_height) & (columns >= 0) & (columns < canvas_width)
    return kept


def _kept(positions: Tensor, first: int | None, grid: Grid, canvas: int) -> Tensor:
    """Whether rows or columns lie in no stripe: there is one for each whole period of the canvas.

    `first` is where the first one starts, None for no stripes.
    """
    if first is None:
        return torch.ones_like(positions, dtype=torch.bool)
    since = positions - first
    striped = canvas // grid.period * grid.period
    return (since < 0) | (since >= striped) | (since % grid.period >= grid.stripe)


def _turned(
    angle: int, height: int, width: int, rows: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor]:
    """The pixels that Pillow's `Image.rotate` copies to these rows and columns of a canvas.

    Pillow maps pixel centres back about the centre of the canvas, in fixed point with 16 fractional
    bits (canvases of 2**15 pixels and more, in double precision: not followed here). A pixel from
    beyond the canvas is blank there.
    """
    radians = -math.radians(angle % 360.0)
    cosine, sine = round(math.cos(radians), 15), round(math.sin(radians), 15)
    x, y = width / 2.0, height / 2.0

    def fixed(number: float) -> int:
        return math.floor(number * (1 << _FIXED) + 0.5)

    def mapped(along_x: float, along_y: float, centre: float) -> Tensor:
        start = along_x * -x + along_y * -y + centre + along_x * 0.5 + along_y * 0.5
        return (fixed(along_x) * columns + fixed(along_y) * rows + fixed(start)) >> _FIXED

    return mapped(-sine, cosine, y), mapped(cosine, sine, x)
