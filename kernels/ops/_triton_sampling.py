"""Bilinear sampling for Triton kernels: packed (x, y) pairs, one axis at a time, zeros outside."""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

import triton
import triton.language as tl


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
def bilinear_axis(location, size):
    """One axis of bilinear sampling at `location` (0 to 1 across `size` pixels).

    Returns the first of the two pixels and the weights of both, zero for a pixel outside. The
    position is brought within two pixels of the level first: NaN and infinity become a sample that
    is outside (NaN fails the comparison), and the conversion to an integer is always defined.
    """
    position = location * size - 0.5
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
