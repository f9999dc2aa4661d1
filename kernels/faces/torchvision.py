"""`modulated_deform_conv2d` as torchvision's `torchvision.ops.deform_conv2d` is called."""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.modulated_deform_conv2d import modulated_deform_conv2d


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    mask: Tensor | None = None,
) -> Tensor:
    """See `modulated_deform_conv2d`; the two numbers of groups follow from the shapes. Can be
    scripted, and traced.

    The one difference to torchvision: for a sample that lies exactly one pixel above or left of the
    image (y or x of -1) torchvision gives the slope towards the image as the offset's gradient.
    Here, as in mmcv, that sample is outside and its gradient zero.

    Args:
        input: (N, C, H, W).
        offset: (N, offset groups * kh * kw * 2, Hout, Wout).
        weight: (O, C / groups, kh, kw).
        stride, padding, dilation: (vertical, horizontal); one number for both, outside of scripts.
        mask: (N, offset groups * kh * kw, Hout, Wout), or None for ones.

    Returns:
        (N, O, Hout, Wout).

    Raises:
        RuntimeError: a shape, or tensors on several devices; TypeError: a dtype.
    """
    if input.dim() != 4 or weight.dim() != 4 or offset.dim() != 4:
        raise RuntimeError(
            f"input, offset and weight must have 4 dimensions, not {input.dim()}, "
            f"{offset.dim()} and {weight.dim()}"
        )
    samples = 2 * weight.shape[2] * weight.shape[3]
    if offset.shape[1] < samples or offset.shape[1] % samples != 0:
        raise RuntimeError(
            f"offset must have a multiple of {samples} channels to go with the kernel of weight, "
            f"not {offset.shape[1]}"
        )
    # A trace records sizes as tensors.
    groups = int(input.shape[1] // weight.shape[1])
    deform_groups = int(offset.shape[1] // samples)
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        scripted: Tensor = torch.ops.turbo_physai.modulated_deform_conv2d(
            input,
            offset,
            mask,
            weight,
            bias,
            [stride[0], stride[1]],
            [padding[0], padding[1]],
            [dilation[0], dilation[1]],
            groups,
            deform_groups,
        )
        return scripted
    else:  # noqa: RET505 (a script compiles what follows an if, but not its else)
        return _eager(
            input, offset, mask, weight, bias, stride, padding, dilation, groups, deform_groups
        )


def _eager(*arguments: Tensor | tuple[int, int] | int | None) -> Tensor:
    try:
        return modulated_deform_conv2d(*arguments)  # type: ignore[arg-type]
    except ValueError as error:
        raise RuntimeError(str(error)) from None
