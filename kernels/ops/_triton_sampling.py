"""Bilinear sampling for Triton kernels: packed (x, y) pairs, zeros outside, and its gradients.

A program samples for ROWS (query, head) pairs at a time, LANES channels of each: positions and
weights are (ROWS,), pixels and sums (ROWS, LANES), `used` masks the channels that there are.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

import triton
import triton.language as tl

from ._triton_sums import add, nonzero


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
def bilinear_axis(position, size):
    """One axis of bilinear sampling at `position` pixels (0 is the first pixel's centre).

    Returns the first of the two pixels and the weights of both, zero for a pixel outside. The
    position is brought within two pixels of the level first: NaN and infinity become a sample that
    is outside (NaN fails the comparison), and the conversion to an integer is always defined.
    """
    position = tl.where(position > -2.0, position, -2.0)
    position = tl.minimum(position, size + 1.0)
    first = tl.floor(position)
    fraction = position - first
    pixel = first.to(tl.int32)
    return (
        pixel,
        tl.where(inside(pixel, size), 1.0 - fraction, 0.0),
        tl.where(inside(pixel + 1, size), fraction, 0.0),
    )


@triton.jit
def inside(pixel, size):
    """0 <= pixel < size in one comparison: a negative number is a large unsigned one."""
    return pixel.to(tl.uint32) < size.to(tl.uint32)


@triton.jit
def across(row_values, LANES: tl.constexpr):
    """(N,) repeated to (N, LANES).

    The width is written out, not left to broadcasting, so that comparisons come after it: otherwise
    the compiler moves the predicates between threads beside the numbers they come from.
    """
    return tl.broadcast_to(row_values[:, None], (row_values.shape[0], LANES))


@triton.jit
def add_sample(total, level_pixel, x, y, weight, width, height, KEY: tl.constexpr, used):
    """`total` and one sample a row, at pixel (x, y) of a level, times its weight.

    Args:
        level_pixel: pointers to the channels of the level's first pixel.
        KEY: elements from one pixel to the next.
    """
    LANES: tl.constexpr = total.shape[1]
    x, left, right = bilinear_axis(x, width)
    y, top, bottom = bilinear_axis(y, height)
    w00 = across(weight * top * left, LANES)
    w01 = across(weight * top * right, LANES)
    w10 = across(weight * bottom * left, LANES)
    w11 = across(weight * bottom * right, LANES)
    above = level_pixel + (y * width + x)[:, None].to(tl.int64) * KEY
    below = above + width.to(tl.int64) * KEY
    # A weight of zero needs no load, and one that is outside must have none.
    v00 = tl.load(above, nonzero(w00) & used, other=0).to(tl.float32)
    v01 = tl.load(above + KEY, nonzero(w01) & used, other=0).to(tl.float32)
    v10 = tl.load(below, nonzero(w10) & used, other=0).to(tl.float32)
    v11 = tl.load(below + KEY, nonzero(w11) & used, other=0).to(tl.float32)
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
    x,
    y,
    weight,
    width,
    height,
    grad,
    steps,
    KEY: tl.constexpr,
    used,
):
    """Add `grad` times one sample's factors to the sums of its pixels (see `_triton_sums`).

    Args:
        sums_ptr, value_ptr: `level_pixel` is an offset from both.
        grad: (ROWS, LANES) float32, the gradient of the weighted sample.

    Returns:
        Three (ROWS,): the gradients of the sample's weight, and of its x and y for a weight of 1.
    """
    LANES: tl.constexpr = grad.shape[1]
    x, left, right = bilinear_axis(x, width)
    y, top, bottom = bilinear_axis(y, height)
    above = level_pixel + (y * width + x)[:, None].to(tl.int64) * KEY
    below = above + width.to(tl.int64) * KEY

    # The gradient of a weight of zero is not zero: here it is the pixel that decides.
    in_left, in_right = inside(x, width), inside(x + 1, width)
    in_top, in_bottom = inside(y, height), inside(y + 1, height)
    m00, m01 = (in_top & in_left)[:, None] & used, (in_top & in_right)[:, None] & used
    m10, m11 = (in_bottom & in_left)[:, None] & used, (in_bottom & in_right)[:, None] & used
    v00 = tl.load(value_ptr + above, m00, other=0).to(tl.float32)
    v01 = tl.load(value_ptr + above + KEY, m01, other=0).to(tl.float32)
    v10 = tl.load(value_ptr + below, m10, other=0).to(tl.float32)
    v11 = tl.load(value_ptr + below + KEY, m11, other=0).to(tl.float32)

    add(sums_ptr + above, grad, across(weight * top * left, LANES), steps, used)
    add(sums_ptr + above + KEY, grad, across(weight * top * right, LANES), steps, used)
    add(sums_ptr + below, grad, across(weight * bottom * left, LANES), steps, used)
    add(sums_ptr + below + KEY, grad, across(weight * bottom * right, LANES), steps, used)

    d00, d01 = tl.sum(v00 * grad, 1), tl.sum(v01 * grad, 1)
    d10, d11 = tl.sum(v10 * grad, 1), tl.sum(v11 * grad, 1)
    along_top = left * d00 + right * d01
    along_bottom = left * d10 + right * d11
    # A pixel to the right moves 1 from left to right.
    grad_x = top * (d01 - d00) + bottom * (d11 - d10)
    return top * along_top + bottom * along_bottom, grad_x, along_bottom - along_top
