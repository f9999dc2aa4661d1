"""The Triton kernels of modulated_deform_conv2d.

Tensors, all contiguous: image (N, H, W, C), weights (O, taps, C / groups), grad_out (N, Hout, Wout,
O), offset (N, deform groups, taps, 2, Hout * Wout), mask the same without the 2. A tile has PIXELS
output pixels, counted through the batch, by BLOCK channels going in or OUTS coming out.
"""

# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator,no-untyped-call"

import triton
import triton.language as tl

from ...common.triton.sampling import inside

# Another kernel for every size of image is not worth its compilation.
_NUMBERS = ["pixels", "height", "width", "out_height", "out_width", "stride_h", "stride_w"]
_NUMBERS += ["pad_h", "pad_w", "dilation_h", "dilation_w"]


@triton.jit(do_not_specialize=_NUMBERS)
def forward_kernel(
    out_ptr,
    image_ptr,
    offset_ptr,
    mask_ptr,
    weights_ptr,
    bias_ptr,
    pixels,
    height,
    width,
    out_height,
    out_width,
    stride_h,
    stride_w,
    pad_h,
    pad_w,
    dilation_h,
    dilation_w,
    OUT_LAST: tl.constexpr,
    GROUPS: tl.constexpr,
    DEFORM_GROUPS: tl.constexpr,
    GROUP_IN: tl.constexpr,
    GROUP_OUT: tl.constexpr,
    RUN: tl.constexpr,
    TAPS: tl.constexpr,
    KERNEL_W: tl.constexpr,
    PIXELS: tl.constexpr,
    BLOCK: tl.constexpr,
    OUTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A program: a tile of pixels by a tile of one group's output channels, over all taps."""
    IN: tl.constexpr = GROUPS * GROUP_IN
    OUT: tl.constexpr = GROUPS * GROUP_OUT
    OUT_TILES: tl.constexpr = (GROUP_OUT + OUTS - 1) // OUTS
    group = tl.program_id(1) // OUT_TILES
    out = tl.program_id(1) % OUT_TILES * OUTS + tl.arange(0, OUTS)
    out_used = out < GROUP_OUT
    plane = out_height * out_width
    pixel, item, at, live = _tile(tl.program_id(0), pixels, plane, PIXELS)
    base_y, base_x = at // out_width * stride_h - pad_h, at % out_width * stride_w - pad_w
    weights = weights_ptr + (group * GROUP_OUT + out)[None, :] * (TAPS * GROUP_IN)

    total = tl.zeros((PIXELS, OUTS), tl.float32)
    for step in range(GROUP_IN // RUN * TAPS):
        first, tap = step // TAPS * RUN, step % TAPS
        deform = (group * GROUP_IN + first) // (IN // DEFORM_GROUPS)
        sample = (item * DEFORM_GROUPS + deform) * TAPS + tap
        y, x, fy, fx, mask = _locate(
            offset_ptr,
            mask_ptr,
            sample,
            plane,
            at,
            base_y + tap // KERNEL_W * dilation_h,
            base_x + tap % KERNEL_W * dilation_w,
            height,
            width,
            live,
        )
        corner = image_ptr + ((item * height + y) * width + x) * IN + group * GROUP_IN + first
        for begin in range(0, RUN, BLOCK):
            channel = begin + tl.arange(0, BLOCK)
            used = channel < RUN
            column = _column(corner, y, x, fy, fx, mask, height, width, live, channel, used, IN)
            weight = tl.load(
                weights + (tap * GROUP_IN + first + channel)[:, None],
                used[:, None] & out_used[None, :],
                other=0,
            )
            total = tl.dot(column.to(weight.dtype), weight, total, input_precision=PRECISION)

    out = group * GROUP_OUT + out
    if bias_ptr is not None:
        total += tl.load(bias_ptr + out, out_used, other=0).to(tl.float32)[None, :]
    if OUT_LAST:
        to = out_ptr + pixel[:, None] * OUT + out[None, :]
    else:
        to = out_ptr + (item[:, None] * OUT + out[None, :]) * plane + at[:, None]
    tl.store(to, total.to(out_ptr.dtype.element_ty), live[:, None] & out_used[None, :])


@triton.jit(do_not_specialize=_NUMBERS)
def backward_data_kernel(
    image_sums_ptr,
    grad_offset_ptr,
    grad_mask_ptr,
    grad_out_ptr,
    image_ptr,
    offset_ptr,
    mask_ptr,
    weights_ptr,
    pixels,
    height,
    width,
    out_height,
    out_width,
    stride_h,
    stride_w,
    pad_h,
    pad_w,
    dilation_h,
    dilation_w,
    GROUPS: tl.constexpr,
    DEFORM_GROUPS: tl.constexpr,
    GROUP_IN: tl.constexpr,
    GROUP_OUT: tl.constexpr,
    RUN: tl.constexpr,
    TAPS: tl.constexpr,
    KERNEL_W: tl.constexpr,
    PIXELS: tl.constexpr,
    BLOCK: tl.constexpr,
    OUTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A program: a tile of pixels, one tap, all channels of one deform group.

    Adds to image_sums (N, H, W, C), float32, where it is not None; writes the gradients of offset
    and mask.
    """
    IN: tl.constexpr = GROUPS * GROUP_IN
    DEFORM_IN: tl.constexpr = IN // DEFORM_GROUPS
    deform, tap = tl.program_id(1) // TAPS, tl.program_id(1) % TAPS
    plane = out_height * out_width
    pixel, item, at, live = _tile(tl.program_id(0), pixels, plane, PIXELS)
    sample = (item * DEFORM_GROUPS + deform) * TAPS + tap
    y, x, fy, fx, mask = _locate(
        offset_ptr,
        mask_ptr,
        sample,
        plane,
        at,
        at // out_width * stride_h - pad_h + tap // KERNEL_W * dilation_h,
        at % out_width * stride_w - pad_w + tap % KERNEL_W * dilation_w,
        height,
        width,
        live,
    )
    corner = ((item * height + y) * width + x) * IN
    top, bottom = inside(y, height) & live, inside(y + 1, height) & live
    left, right = inside(x, width), inside(x + 1, width)

    dot00 = tl.zeros((PIXELS,), tl.float32)
    dot01 = tl.zeros((PIXELS,), tl.float32)
    dot10 = tl.zeros((PIXELS,), tl.float32)
    dot11 = tl.zeros((PIXELS,), tl.float32)
    for block in range(DEFORM_IN // RUN * ((RUN + BLOCK - 1) // BLOCK)):
        first = deform * DEFORM_IN + block // ((RUN + BLOCK - 1) // BLOCK) * RUN
        channel = block % ((RUN + BLOCK - 1) // BLOCK) * BLOCK + tl.arange(0, BLOCK)
        used = channel < RUN
        group = first // GROUP_IN
        grad = _grad_column(
            grad_out_ptr + pixel[:, None] * (GROUPS * GROUP_OUT) + group * GROUP_OUT,
            weights_ptr
            + (group * GROUP_OUT * TAPS + tap) * GROUP_IN
            + (first % GROUP_IN + channel)[None, :],
            live,
            used,
            GROUP_OUT,
            TAPS * GROUP_IN,
            BLOCK,
            OUTS,
            PRECISION,
        )
        to = (corner + first)[:, None] + channel[None, :]
        down = width.to(tl.int64) * IN
        dot00 += _share(
            image_sums_ptr, image_ptr, to, grad, top & left, mask * (1 - fy) * (1 - fx), used
        )
        dot01 += _share(
            image_sums_ptr, image_ptr, to + IN, grad, top & right, mask * (1 - fy) * fx, used
        )
        dot10 += _share(
            image_sums_ptr, image_ptr, to + down, grad, bottom & left, mask * fy * (1 - fx), used
        )
        dot11 += _share(
            image_sums_ptr, image_ptr, to + down + IN, grad, bottom & right, mask * fy * fx, used
        )

    # A pixel down moves 1 from the upper corners to the lower ones.
    above, below = (1 - fx) * dot00 + fx * dot01, (1 - fx) * dot10 + fx * dot11
    grad_y = mask * (below - above)
    grad_x = mask * ((1 - fy) * (dot01 - dot00) + fy * (dot11 - dot10))
    to_offset = grad_offset_ptr + 2 * sample * plane + at
    tl.store(to_offset, grad_y.to(grad_offset_ptr.dtype.element_ty), live)
    tl.store(to_offset + plane, grad_x.to(grad_offset_ptr.dtype.element_ty), live)
    if grad_mask_ptr is not None:
        grad_mask = (1 - fy) * above + fy * below
        to_mask = grad_mask_ptr + sample * plane + at
        tl.store(to_mask, grad_mask.to(grad_mask_ptr.dtype.element_ty), live)


@triton.jit(do_not_specialize=_NUMBERS)
def backward_weight_kernel(
    weight_sums_ptr,
    grad_out_ptr,
    image_ptr,
    offset_ptr,
    mask_ptr,
    pixels,
    height,
    width,
    out_height,
    out_width,
    stride_h,
    stride_w,
    pad_h,
    pad_w,
    dilation_h,
    dilation_w,
    GROUPS: tl.constexpr,
    DEFORM_GROUPS: tl.constexpr,
    GROUP_IN: tl.constexpr,
    GROUP_OUT: tl.constexpr,
    RUN: tl.constexpr,
    TAPS: tl.constexpr,
    KERNEL_W: tl.constexpr,
    PIXELS: tl.constexpr,
    BLOCK: tl.constexpr,
    OUTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A program: one tap, a block of channels, a tile of output channels, some tiles of pixels.

    Adds to weight_sums (O, taps, C / groups), float32.
    """
    IN: tl.constexpr = GROUPS * GROUP_IN
    OUT: tl.constexpr = GROUPS * GROUP_OUT
    BLOCKS: tl.constexpr = (RUN + BLOCK - 1) // BLOCK
    OUT_TILES: tl.constexpr = (GROUP_OUT + OUTS - 1) // OUTS
    tap, block = tl.program_id(0) % TAPS, tl.program_id(0) // TAPS
    first, channel = block // BLOCKS * RUN, block % BLOCKS * BLOCK + tl.arange(0, BLOCK)
    used = channel < RUN
    group = tl.program_id(1) // OUT_TILES
    out = tl.program_id(1) % OUT_TILES * OUTS + tl.arange(0, OUTS)
    out_used = out < GROUP_OUT
    out = group * GROUP_OUT + out
    deform = (group * GROUP_IN + first) // (IN // DEFORM_GROUPS)
    plane = out_height * out_width
    tap_y, tap_x = tap // KERNEL_W * dilation_h - pad_h, tap % KERNEL_W * dilation_w - pad_w

    total = tl.zeros((OUTS, BLOCK), tl.float32)
    for tile in range(tl.program_id(2), tl.cdiv(pixels, PIXELS), tl.num_programs(2)):
        pixel, item, at, live = _tile(tile, pixels, plane, PIXELS)
        y, x, fy, fx, mask = _locate(
            offset_ptr,
            mask_ptr,
            (item * DEFORM_GROUPS + deform) * TAPS + tap,
            plane,
            at,
            at // out_width * stride_h + tap_y,
            at % out_width * stride_w + tap_x,
            height,
            width,
            live,
        )
        corner = image_ptr + ((item * height + y) * width + x) * IN + group * GROUP_IN + first
        column = _column(corner, y, x, fy, fx, mask, height, width, live, channel, used, IN)
        grad = tl.load(
            grad_out_ptr + pixel[None, :] * OUT + out[:, None],
            live[None, :] & out_used[:, None],
            other=0,
        )
        total = tl.dot(grad, column.to(grad.dtype), total, input_precision=PRECISION)
    to = weight_sums_ptr + (out * TAPS + tap)[:, None] * GROUP_IN + (first + channel)[None, :]
    tl.atomic_add(to, total, out_used[:, None] & used[None, :], sem="relaxed")


@triton.jit
def _tile(tile, pixels, plane, PIXELS: tl.constexpr):
    """A tile's pixels through the batch, their images, their places there, and which there are.

    Those past the last one repeat it: no load needs a mask.
    """
    pixel = tile * PIXELS + tl.arange(0, PIXELS)
    live = pixel < pixels
    pixel = tl.minimum(pixel, pixels - 1)
    return pixel.to(tl.int64), (pixel // plane).to(tl.int64), pixel % plane, live


@triton.jit
def _locate(offset_ptr, mask_ptr, sample, plane, at, base_y, base_x, height, width, live):
    """A sample a pixel: its upper left corner (y, x), how far behind that it is, and its mask.

    Args:
        sample: which (image, deform group, tap).
        base_y, base_x: where it would be without an offset.
    """
    offsets = offset_ptr + 2 * sample * plane + at
    y, fy = _corner(base_y.to(tl.float32) + tl.load(offsets).to(tl.float32), height)
    x, fx = _corner(base_x.to(tl.float32) + tl.load(offsets + plane).to(tl.float32), width)
    touches = live & (y > -2) & (x > -2)
    if mask_ptr is None:
        mask = tl.where(touches, 1.0, 0.0)
    else:
        mask = tl.load(mask_ptr + sample * plane + at).to(tl.float32)
        mask = tl.where(touches, mask, 0.0)
    return y, x, fy, fx, mask


@triton.jit
def _corner(position, size):
    """The pixel at or before `position`, and how far behind it; -2 where no pixel is touched.

    NaN fails the comparisons, and the conversion to an integer is always defined.
    """
    position = tl.where((position > -1.0) & (position < size), position, -2.0)
    first = tl.floor(position)
    return first.to(tl.int32), position - first


@triton.jit
def _column(corner, y, x, fy, fx, mask, height, width, live, channel, used, IN: tl.constexpr):
    """(PIXELS, BLOCK) float32: samples times their masks.

    Args:
        corner: pointers to channel 0 of the upper left corners.
    """
    above = corner[:, None] + channel[None, :]
    below = above + width.to(tl.int64) * IN
    top, bottom = inside(y, height) & live, inside(y + 1, height) & live
    left, right = inside(x, width), inside(x + 1, width)
    total = _weighed(above, top & left, mask * (1 - fy) * (1 - fx), used)
    total += _weighed(above + IN, top & right, mask * (1 - fy) * fx, used)
    total += _weighed(below, bottom & left, mask * fy * (1 - fx), used)
    total += _weighed(below + IN, bottom & right, mask * fy * fx, used)
    # A product would carry zero times an infinite mask from channels that do not exist.
    return tl.where(used[None, :], total, 0.0)


@triton.jit
def _weighed(pointers, there, weight, used):
    """Pixels times weights, zero outside whatever the weight is."""
    pixel = tl.load(pointers, there[:, None] & used[None, :], other=0).to(tl.float32)
    return pixel * tl.where(there, weight, 0.0)[:, None]


@triton.jit
def _grad_column(
    grad_out,
    weights,
    live,
    used,
    GROUP_OUT: tl.constexpr,
    WEIGHT: tl.constexpr,
    BLOCK: tl.constexpr,
    OUTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """(PIXELS, BLOCK) float32: the gradients of a tap's columns.

    Args:
        grad_out: pointers to the pixels' first channel of the group, (PIXELS, 1).
        weights: pointers to the group's first weights of the channels, (1, BLOCK).
        WEIGHT: elements from one output channel's weights to the next one's.
    """
    PIXELS: tl.constexpr = grad_out.shape[0]
    total = tl.zeros((PIXELS, BLOCK), tl.float32)
    for begin in range(0, GROUP_OUT, OUTS):
        out = begin + tl.arange(0, OUTS)
        there = out < GROUP_OUT
        grad = tl.load(grad_out + out[None, :], live[:, None] & there[None, :], other=0)
        weight = tl.load(weights + out[:, None] * WEIGHT, there[:, None] & used[None, :], other=0)
        total = tl.dot(grad, weight, total, input_precision=PRECISION)
    return total


@triton.jit
def _share(image_sums_ptr, image_ptr, to, grad, there, weight, used):
    """Add a corner's share to its gradient; returns the gradient's dot product with the corner."""
    there = there[:, None] & used[None, :]
    pixel = tl.load(image_ptr + to, there, other=0).to(tl.float32)
    if image_sums_ptr is not None:
        tl.atomic_add(image_sums_ptr + to, grad * weight[:, None], there, sem="relaxed")
    return tl.sum(pixel * grad, 1)
