"""`ms_deform_attn` as Hugging Face transformers calls it.

Usable as the layer "MultiScaleDeformableAttention" of the `kernels` package: no state, no
constructor, the capabilities declared.
"""

from __future__ import annotations

from torch import Tensor, nn

from ..ops.ms_deform_attn import ms_deform_attn


class MultiScaleDeformableAttention(nn.Module):
    """The module of that name in deformable_detr, grounding_dino, mask2former, oneformer, ..."""

    has_backward: bool = True
    can_torch_compile: bool = True

    def forward(
        self,
        value: Tensor,
        value_spatial_shapes: Tensor,
        value_spatial_shapes_list: list[tuple[int, int]],
        level_start_index: Tensor,
        sampling_locations: Tensor,
        attention_weights: Tensor,
        im2col_step: int,
    ) -> Tensor:
        """See `ms_deform_attn`; `value_spatial_shapes_list` and `im2col_step` are not needed.

        Returns:
            (batch, num_queries, num_heads * head_dim)
        """
        return ms_deform_attn(
            value,
            value_spatial_shapes,
            level_start_index,
            sampling_locations,
            attention_weights,
        )
