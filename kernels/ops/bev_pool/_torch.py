"""`bev_pool` in PyTorch's own operators, as deterministic as `Tensor.index_add_` is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...common.dtypes import sum_dtype
from . import Inputs
from .reference import cells_of_rows
from .reference import forward as definition


def forward(inputs: Inputs) -> Tensor:
    """See `bev_pool`."""
    sums = definition(inputs._replace(x=inputs.x.to(sum_dtype(inputs.x))))
    return sums.to(inputs.x.dtype)


def backward(
    grad_out: Tensor, inputs: Inputs, wanted: Sequence[bool] = (True,)
) -> tuple[Tensor | None]:
    """The gradient of `x`."""
    cell, used = cells_of_rows(inputs)
    grad = grad_out.reshape(-1, grad_out.shape[-1])[cell].to(inputs.x.dtype)
    return (torch.where(used[:, None], grad, 0),)
