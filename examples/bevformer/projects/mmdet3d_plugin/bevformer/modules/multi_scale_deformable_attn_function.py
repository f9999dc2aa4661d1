"""Multi-scale deformable attention (arXiv 2010.04159, eq. 3), as torch code and as a Function."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.amp import custom_bwd, custom_fwd
from torch.autograd.function import Function, once_differentiable


def multi_scale_deformable_attn_pytorch(
    value: Tensor,
    value_spatial_shapes: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    """Sample every level bilinearly (zeros outside) and sum the samples by their weights.

    Args:
        value: (B, S, H, D), the levels one after the other along S.
        value_spatial_shapes: (L, 2) int64, height and width of each level.
        sampling_locations: (B, Q, H, L, P, 2) as (x, y), 0 to 1 across the level.
        attention_weights: (B, Q, H, L, P).

    Returns:
        (B, Q, H * D).
    """
    batch, _, heads, dim = value.shape
    _, queries, _, levels, points, _ = sampling_locations.shape
    sizes = [(int(height), int(width)) for height, width in value_spatial_shapes]
    maps = value.split([height * width for height, width in sizes], dim=1)
    grids = 2 * sampling_locations - 1  # grid_sample counts from -1 to 1
    samples = []
    for level, (height, width) in enumerate(sizes):
        image = maps[level].flatten(2).transpose(1, 2).reshape(batch * heads, dim, height, width)
        grid = grids[:, :, :, level].transpose(1, 2).flatten(0, 1)  # (B*H, Q, P, 2)
        samples.append(F.grid_sample(image, grid, align_corners=False))  # (B*H, D, Q, P)
    weights = attention_weights.transpose(1, 2).reshape(batch * heads, 1, queries, levels * points)
    output = (torch.stack(samples, dim=-2).flatten(-2) * weights).sum(-1)
    return output.view(batch, heads * dim, queries).transpose(1, 2).contiguous()


def _forward(ctx: Any, value: Tensor, shapes: Tensor, locations: Tensor, weights: Tensor) -> Tensor:
    # The graph of the torch formulation is kept for backward: sampling a second time there would
    # make this class slower than the formulation it stands for.
    needed = [ctx.needs_input_grad[index] for index in (0, 3, 4)]
    inputs = [
        tensor.detach().requires_grad_(need)
        for tensor, need in zip((value, locations, weights), needed, strict=True)
    ]
    with torch.set_grad_enabled(any(needed)):
        output = multi_scale_deformable_attn_pytorch(inputs[0], shapes, inputs[1], inputs[2])
    ctx.inputs, ctx.output = inputs, output
    return output.detach()


def _backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
    wanted = [tensor for tensor in ctx.inputs if tensor.requires_grad]
    found = iter(torch.autograd.grad(ctx.output, wanted, grad_output, retain_graph=True))
    value, locations, weights = (
        next(found) if tensor.requires_grad else None for tensor in ctx.inputs
    )
    return value, None, None, locations, weights, None


class MultiScaleDeformableAttnFunction_fp32(Function):
    """`apply(value, value_spatial_shapes, value_level_start_index, sampling_locations,
    attention_weights, im2col_step)` -> (B, Q, H * D); under CUDA autocast it computes in fp32."""

    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(
        ctx: Any,
        value: Tensor,
        value_spatial_shapes: Tensor,
        value_level_start_index: Tensor,
        sampling_locations: Tensor,
        attention_weights: Tensor,
        im2col_step: int,
    ) -> Tensor:
        return _forward(ctx, value, value_spatial_shapes, sampling_locations, attention_weights)

    @staticmethod
    @once_differentiable
    @custom_bwd(device_type="cuda")
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        return _backward(ctx, grad_output)


class MultiScaleDeformableAttnFunction_fp16(Function):
    """The same contract; under CUDA autocast it computes in fp16."""

    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float16)
    def forward(
        ctx: Any,
        value: Tensor,
        value_spatial_shapes: Tensor,
        value_level_start_index: Tensor,
        sampling_locations: Tensor,
        attention_weights: Tensor,
        im2col_step: int,
    ) -> Tensor:
        return _forward(ctx, value, value_spatial_shapes, sampling_locations, attention_weights)

    @staticmethod
    @once_differentiable
    @custom_bwd(device_type="cuda")
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        return _backward(ctx, grad_output)
