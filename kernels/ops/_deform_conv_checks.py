"""What modulated_deform_conv2d refuses, from shapes, dtypes and devices alone."""

from __future__ import annotations

from torch import Tensor

from ._checks import FLOATS, check_dtype, check_rank
from ._deform_conv_geometry import Geometry

_MAX_PIXELS = 2**31 - 1


def check(
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
) -> None:
    """Raises what `modulated_deform_conv2d` says."""
    given = {"input": input, "offset": offset, "mask": mask, "weight": weight, "bias": bias}
    tensors = {name: tensor for name, tensor in given.items() if tensor is not None}
    for name, tensor in tensors.items():
        check_dtype(name, tensor, FLOATS)
    check_rank("input", input, "(N, C, H, W)")
    check_rank("weight", weight, "(O, C / groups, kh, kw)")
    _check_geometry(input, weight, geometry)
    for name, expected in _shapes(input, weight, geometry).items():
        if name in tensors and tuple(tensors[name].shape) != expected:
            raise ValueError(
                f"{name} must be {expected} to go with input {tuple(input.shape)} and weight "
                f"{tuple(weight.shape)}, not {tuple(tensors[name].shape)}"
            )
    for name, tensor in tensors.items():
        if tensor.device != input.device:
            raise RuntimeError(f"{name} is on {tensor.device}, input on {input.device}")


def check_grad(grad_out: Tensor, input: Tensor, weight: Tensor, geometry: Geometry) -> None:
    """The same for the gradient of the result; the others have been checked."""
    check_dtype("grad_out", grad_out, FLOATS)
    expected = (input.shape[0], weight.shape[0], *geometry.out_size(input, weight))
    if tuple(grad_out.shape) != expected:
        raise ValueError(f"grad_out must be {expected}, not {tuple(grad_out.shape)}")
    if grad_out.device != input.device:
        raise RuntimeError(f"grad_out is on {grad_out.device}, input on {input.device}")


def _check_geometry(input: Tensor, weight: Tensor, geometry: Geometry) -> None:
    channels, out_channels = input.shape[1], weight.shape[0]
    for name, least in (("stride", 1), ("padding", 0), ("dilation", 1)):
        pair = getattr(geometry, name)
        if min(pair) < least:
            raise ValueError(f"{name} must be {least} or more, not {pair}")
    if min(channels, *weight.shape) < 1:
        raise ValueError(
            f"input and weight must have channels and taps, not {tuple(input.shape)} and "
            f"{tuple(weight.shape)}"
        )
    groups, deform_groups = geometry.groups, geometry.deform_groups
    if groups < 1 or out_channels % groups or channels != weight.shape[1] * groups:
        raise ValueError(
            f"groups ({groups}) must divide weight's {out_channels} out channels, and its "
            f"{weight.shape[1]} channels times groups be input's {channels}"
        )
    if deform_groups < 1 or channels % deform_groups:
        raise ValueError(f"deform_groups ({deform_groups}) must divide input's {channels} channels")
    if min(geometry.out_size(input, weight)) < 1:
        raise ValueError(
            f"input {tuple(input.shape)} is too small for weight {tuple(weight.shape)} with "
            f"padding {geometry.padding} and dilation {geometry.dilation}"
        )
    if input.shape[2] * input.shape[3] > _MAX_PIXELS:
        raise ValueError(f"input must have fewer than 2**31 pixels, not {tuple(input.shape)}")


def _shapes(input: Tensor, weight: Tensor, geometry: Geometry) -> dict[str, tuple[int, ...]]:
    size = geometry.out_size(input, weight)
    samples = geometry.deform_groups * weight.shape[2] * weight.shape[3]
    return {
        "offset": (input.shape[0], 2 * samples, *size),
        "mask": (input.shape[0], samples, *size),
        "bias": (weight.shape[0],),
    }
