"""`modulated_deform_conv2d` as torchvision's `torchvision.ops.deform_conv2d` is called."""

from __future__ import annotations

from torch import Tensor

from ..ops.modulated_deform_conv2d import modulated_deform_conv2d

Pair = tuple[int, int]


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = (1, 1),
    padding: int | Pair = (0, 0),
    dilation: int | Pair = (1, 1),
    mask: Tensor | None = None,
) -> Tensor:
    """See `modulated_deform_conv2d`; the two numbers of groups follow from the shapes.

    The one difference to torchvision: for a sample that lies exactly one pixel above or left of the
    image (y or x of -1) torchvision gives the slope towards the image as the offset's gradient.
    Here, as in mmcv, that sample is outside and its gradient zero.

    Args:
        input: (N, C, H, W).
        offset: (N, offset groups * kh * kw * 2, Hout, Wout).
        weight: (O, C / groups, kh, kw).
        mask: (N, offset groups * kh * kw, Hout, Wout), or None for ones.

    Returns:
        (N, O, Hout, Wout).

    Raises:
        ValueError: a shape; TypeError: a dtype; RuntimeError: tensors on several devices.
    """
    if input.dim() != 4 or weight.dim() != 4 or offset.dim() != 4:
        raise ValueError(
            "input, offset and weight must have 4 dimensions, not "
            f"{tuple(input.shape)}, {tuple(offset.shape)} and {tuple(weight.shape)}"
        )
    samples = 2 * weight.shape[2] * weight.shape[3]
    if offset.shape[1] < samples or offset.shape[1] % samples:
        raise ValueError(
            f"offset {tuple(offset.shape)} must have a multiple of {samples} channels to go with "
            f"weight {tuple(weight.shape)}"
        )
    return modulated_deform_conv2d(
        input,
        offset,
        mask,
        weight,
        bias,
        stride,
        padding,
        dilation,
        groups=input.shape[1] // weight.shape[1],
        deform_groups=offset.shape[1] // samples,
    )
