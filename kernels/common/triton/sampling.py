"""Bilinear sampling for Triton kernels: packed (x, y) pairs, zeros outside, and its gradients.

A program samples for ROWS (query, head) pairs at a time, all channels of each. Positions and
weights are (ROWS,). Channel tiles are split into PARTS sub-tiles, so that a thread owns channels of
one row and computes the per-row numbers itself, without a layout conversion. Where PARTS is 1, the
second of two tiles means nothing.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

import triton
import triton.language as tl

from .sums import add


@triton.jit
def pair_pointer(pointer):
    """A pointer to 16- or 32-bit numbers as one to pairs of them, so that (x, y) is one access."""
    bits: tl.constexpr = 2 * pointer.dtype.element_ty.primitive_bitwidth
    if bits == 64:
        pairs = pointer.to(tl.pointer_type(tl.int64))
    else:
        pairs = pointer.to(tl.pointer_type(tl.int32))
    return pairs


@triton.jit
def unpack(pair, dtype: tl.constexpr):
    """The two numbers of type `dtype` in a pair, as float32."""
    if dtype == tl.float32:
        x = pair.to(tl.int32).to(tl.float32, bitcast=True)
        y = (pair >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    else:
        x = pair.to(tl.int16).to(dtype, bitcast=True).to(tl.float32)
        y = (pair >> 16).to(tl.int16).to(dtype, bitcast=True).to(tl.float32)
    return x, y


@triton.jit
def pack(x, y, dtype: tl.constexpr):
    """The inverse of `unpack`."""
    if dtype == tl.float32:
        low = x.to(tl.uint32, bitcast=True).to(tl.int64)
        high = y.to(tl.int32, bitcast=True).to(tl.int64) << 32
    else:
        low = x.to(dtype).to(tl.uint16, bitcast=True).to(tl.int32)
        high = y.to(dtype).to(tl.int16, bitcast=True).to(tl.int32) << 16
    return high | low


@triton.jit
def load_pair(pairs, index, dtype: tl.constexpr):
    """The pair at an index of a `pair_pointer`, as two float32."""
    return unpack(tl.load(pairs + index), dtype)


@triton.jit
def level_of(shapes_ptr, starts_ptr, level, KEY: tl.constexpr):
    """A level's height and width, and how many elements its first pixel is from the first key."""
    height = tl.load(shapes_ptr + 2 * level).to(tl.int32)
    width = tl.load(shapes_ptr + 2 * level + 1).to(tl.int32)
    return height, width, tl.load(starts_ptr + level).to(tl.int64) * KEY


@triton.jit
def bilinear_axis(position, size):
    """One axis of bilinear sampling at `position` pixels (0 is the first pixel's centre).

    Returns the first of the two pixels, how far behind it the position is, and whether each of the
    two is inside. The position is brought within two pixels of the level first: NaN and infinity
    become a sample that is outside (NaN fails the comparison), and the conversion to an integer is
    always defined.
    """
    position = tl.where(position > -2.0, position, -2.0)
    position = tl.minimum(position, size + 1.0)
    first = tl.floor(position)
    pixel = first.to(tl.int32)
    return pixel, position - first, inside(pixel, size), inside(pixel + 1, size)


@triton.jit
def inside(pixel, size):
    """0 <= pixel < size in one comparison: a negative number is a large unsigned one."""
    return pixel.to(tl.uint32) < size.to(tl.uint32)


@triton.jit
def channels(ROWS: tl.constexpr, LANES: tl.constexpr, PARTS: tl.constexpr, VECTOR: tl.constexpr):
    """The channels of two tiles, each (ROWS, LANES // PARTS).

    Every other row has its halves the other way round. A half can be half a line of the cache, and
    rows side by side would else read the same half of their lines at once, from the same banks.

    Args:
        VECTOR: how many channels one access may have.
    """
    WIDTH: tl.constexpr = LANES // PARTS
    channel = tl.max_contiguous(tl.arange(0, WIDTH), VECTOR)[None, :]
    first = (tl.arange(0, ROWS) % PARTS * WIDTH)[:, None]
    return first + channel, (LANES - WIDTH - first) + channel


@triton.jit
def across(row_values, tile):
    """(ROWS,) repeated to the shape of a tile.

    The shape is written out, not left to broadcasting, so that comparisons come after it: otherwise
    the compiler moves the predicates between threads beside the numbers they come from.
    """
    return tl.broadcast_to(row_values[:, None], tile.shape)


@triton.jit
def add_sample(
    total,
    level_pixel,
    channel,
    x,
    y,
    weight,
    width,
    height,
    KEY: tl.constexpr,
    DIM: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Two tiles, `total` and one sample a row, at pixel (x, y) of a level, times its weight.

    Args:
        level_pixel: a pointer to the level's first pixel.
        channel: two tiles, see `channels`; there are channels up to DIM.
        KEY: elements from one pixel to the next.
    """
    x, fx, in_left, in_right = bilinear_axis(x, width)
    y, fy, in_top, in_bottom = bilinear_axis(y, height)
    left, right = weight * (1.0 - fx), weight * fx
    # Zero for a corner outside whatever the weight is: NaN and infinity must not get there.
    w00 = across(tl.where(in_top & in_left, (1.0 - fy) * left, 0.0), channel[0])
    w01 = across(tl.where(in_top & in_right, (1.0 - fy) * right, 0.0), channel[0])
    w10 = across(tl.where(in_bottom & in_left, fy * left, 0.0), channel[0])
    w11 = across(tl.where(in_bottom & in_right, fy * right, 0.0), channel[0])
    above = (y * width + x)[:, None].to(tl.int64) * KEY
    below = width.to(tl.int64) * KEY
    first = _add_corners(
        total[0], level_pixel + channel[0] + above, below, w00, w01, w10, w11, KEY, channel[0] < DIM
    )
    second = total[1]
    if PARTS == 2:
        second = _add_corners(
            second,
            level_pixel + channel[1] + above,
            below,
            w00,
            w01,
            w10,
            w11,
            KEY,
            channel[1] < DIM,
        )
    return first, second


@triton.jit
def _add_corners(total, above, below, w00, w01, w10, w11, KEY: tl.constexpr, used):
    below += above
    # A weight of zero needs no load, and one that is outside must have none. (NaN is not zero.)
    v00 = tl.load(above, (w00 != 0.0) & used, other=0).to(tl.float32)
    v01 = tl.load(above + KEY, (w01 != 0.0) & used, other=0).to(tl.float32)
    v10 = tl.load(below, (w10 != 0.0) & used, other=0).to(tl.float32)
    v11 = tl.load(below + KEY, (w11 != 0.0) & used, other=0).to(tl.float32)
    total += v00 * w00
    total += v01 * w01
    total += v10 * w10
    total += v11 * w11
    return total


@triton.jit
def add_sample_gradient(
    sums_ptr,
    value_ptr,
    level_pixel,
    channel,
    x,
    y,
    weight,
    width,
    height,
    grad,
    steps,
    KEY: tl.constexpr,
    DIM: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Add `grad` times one sample's factors to the sums of its pixels (see `sums`).

    Args:
        sums_ptr, value_ptr: `level_pixel` is an offset from both. No sums where None.
        channel: two tiles, see `channels`; there are channels up to DIM.
        grad: two tiles, the gradient of the weighted sample.

    Returns:
        Three (ROWS,): the gradients of the sample's weight, and of its x and y.
    """
    x, fx, in_left, in_right = bilinear_axis(x, width)
    y, fy, in_top, in_bottom = bilinear_axis(y, height)
    left, right = weight * (1.0 - fx), weight * fx
    w00 = across(tl.where(in_top & in_left, (1.0 - fy) * left, 0.0), channel[0])
    w01 = across(tl.where(in_top & in_right, (1.0 - fy) * right, 0.0), channel[0])
    w10 = across(tl.where(in_bottom & in_left, fy * left, 0.0), channel[0])
    w11 = across(tl.where(in_bottom & in_right, fy * right, 0.0), channel[0])
    above = level_pixel + (y * width + x)[:, None].to(tl.int64) * KEY
    below = above + width.to(tl.int64) * KEY
    # The gradient of a weight of zero is not zero: here it is the pixel that decides.
    corner = (
        (above, (in_top & in_left)[:, None], w00),
        (above + KEY, (in_top & in_right)[:, None], w01),
        (below, (in_bottom & in_left)[:, None], w10),
        (below + KEY, (in_bottom & in_right)[:, None], w11),
    )
    d00 = _corner_gradient(sums_ptr, value_ptr, corner[0], channel, grad, steps, DIM, PARTS)
    d01 = _corner_gradient(sums_ptr, value_ptr, corner[1], channel, grad, steps, DIM, PARTS)
    d10 = _corner_gradient(sums_ptr, value_ptr, corner[2], channel, grad, steps, DIM, PARTS)
    d11 = _corner_gradient(sums_ptr, value_ptr, corner[3], channel, grad, steps, DIM, PARTS)
    along_top = (1.0 - fx) * d00 + fx * d01
    along_bottom = (1.0 - fx) * d10 + fx * d11
    # A pixel to the right moves 1 from left to right.
    grad_x = (1.0 - fy) * (d01 - d00) + fy * (d11 - d10)
    weight = tl.where((in_top | in_bottom) & (in_left | in_right), weight, 0.0)
    grad_weight = (1.0 - fy) * along_top + fy * along_bottom
    return grad_weight, weight * grad_x, weight * (along_bottom - along_top)


@triton.jit
def _corner_gradient(
    sums_ptr, value_ptr, corner, channel, grad, steps, DIM: tl.constexpr, PARTS: tl.constexpr
):
    """Add to one pixel's sums. Returns (ROWS,), the pixel's value times the gradient."""
    pixel, there, weight = corner[0], corner[1], corner[2]
    used = channel[0] < DIM
    value = tl.load(value_ptr + (pixel + channel[0]), there & used, other=0).to(tl.float32)
    products = value * grad[0]
    if sums_ptr is not None:
        add(sums_ptr + (pixel + channel[0]), grad[0], weight, steps, used)
    if PARTS == 2:
        used = channel[1] < DIM
        value = tl.load(value_ptr + (pixel + channel[1]), there & used, other=0).to(tl.float32)
        products += value * grad[1]
        if sums_ptr is not None:
            add(sums_ptr + (pixel + channel[1]), grad[1], weight, steps, used)
    return tl.sum(products, 1)


@triton.jit
def load_channels(pointer, channel, DIM: tl.constexpr, PARTS: tl.constexpr):
    """Two float32 tiles of channels that start at `pointer`, (ROWS, 1)."""
    first = tl.load(pointer + channel[0], channel[0] < DIM, other=0).to(tl.float32)
    second = first
    if PARTS == 2:
        second = tl.load(pointer + channel[1], channel[1] < DIM, other=0).to(tl.float32)
    return first, second


@triton.jit
def store_channels(pointer, channel, total, live, DIM: tl.constexpr, PARTS: tl.constexpr):
    """Store two tiles of channels for the rows that there are, from `pointer`, (ROWS, 1), on."""
    dtype: tl.constexpr = pointer.dtype.element_ty
    tl.store(pointer + channel[0], total[0].to(dtype), live[:, None] & (channel[0] < DIM))
    if PARTS == 2:
        tl.store(pointer + channel[1], total[1].to(dtype), live[:, None] & (channel[1] < DIM))


@triton.jit
def store_sample_gradient(grad_weights, grad_places, sample, grads, live, dtype: tl.constexpr):
    """Store a sample's three gradients, of its weight and of its place, for the rows that there
    are.

    Args:
        grad_places: a `pair_pointer` to numbers of type `dtype`.
        grads: as `add_sample_gradient` returns them.
    """
    tl.store(grad_weights + sample, grads[0].to(grad_weights.dtype.element_ty), live)
    tl.store(grad_places + sample, pack(grads[1], grads[2], dtype), live)
