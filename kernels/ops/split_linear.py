"""A linear layer over the concatenation of two tensors, without the concatenation.

Temporal self-attention of BEVFormer draws its offsets and logits from [previous map, query]: with
the weight split alike, two products take the place of one and the copy of both inputs is saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .linear import linear

if TYPE_CHECKING:
    from torch import Tensor


def linear_of_concatenation(
    first: Tensor, second: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """`torch.nn.functional.linear(torch.cat((first, second), -1), weight, bias)`.

    Args:
        first: (..., C1).
        second: (..., C2), the other dimensions as those of `first`.
        weight: (D, C1 + C2).
        bias: (D,) or None.

    Dtypes and autocast are those of `linear`; of 16-bit inputs, each product is rounded.

    Returns:
        (..., D)

    Raises:
        ValueError: shapes that `torch.cat` or `linear` would not take either.
    """
    channels = first.shape[-1]
    if first.shape[:-1] != second.shape[:-1]:
        raise ValueError(
            f"first and second must differ in the last dimension only, not be "
            f"{tuple(first.shape)} and {tuple(second.shape)}"
        )
    if weight.dim() != 2 or weight.shape[1] != channels + second.shape[-1]:
        raise ValueError(
            f"weight must be (D, {channels} + {second.shape[-1]}), not {tuple(weight.shape)}"
        )
    for_first, for_second = weight.split_with_sizes((channels, second.shape[-1]), 1)
    return linear(second, for_second, bias) + linear(first, for_first)
