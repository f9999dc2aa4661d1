"""From camera features to a BEV map, and from the map to object queries."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .decoder import CustomMSDeformableAttention
from .initialization import xavier_linear
from .spatial_cross_attention import MSDeformableAttention3D
from .temporal_self_attention import TemporalSelfAttention

if TYPE_CHECKING:
    from collections.abc import Sequence


def rotate(image: Tensor, angle: float, center: Sequence[float]) -> Tensor:
    """Rotate a map (C, H, W) counter-clockwise, row 0 on top; nearest cell, zeros outside.

    Args:
        image: the map.
        angle: degrees.
        center: column and row of the fixed point, cell borders counted from the top left corner.
    """
    channels, height, width = image.shape
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    x, y = center[0] - width / 2, center[1] - height / 2
    # Where an output cell comes from, in cells from the map's middle.
    source = image.new_tensor(
        [[cos, -sin, x - cos * x + sin * y], [sin, cos, y - sin * x - cos * y]]
    )
    size = image.new_tensor([width / 2, height / 2])
    theta = source * torch.cat([size, size.new_ones(1)]) / size[:, None]
    grid = F.affine_grid(theta[None], [1, channels, height, width], align_corners=False)
    return F.grid_sample(image[None], grid, mode="nearest", align_corners=False)[0]


class PerceptionTransformer(nn.Module):
    """Encoder and decoder around one BEV map.

    Args:
        encoder: camera features to a BEV map.
        decoder: object queries on a BEV map.
        embed_dims: channels C.
        num_feature_levels: camera feature levels L.
        num_cams: cameras Nc.
        rotate_prev_bev: rotate the previous map by the change of heading.
        use_shift: move the previous map's reference points by the ego motion.
        use_can_bus: add the embedded ego motion to the BEV queries.
        use_cams_embeds: add one learned vector per camera to its features.
        rotate_center: column and row the previous map turns about.
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        embed_dims: int = 256,
        num_feature_levels: int = 4,
        num_cams: int = 6,
        rotate_prev_bev: bool = True,
        use_shift: bool = True,
        use_can_bus: bool = True,
        use_cams_embeds: bool = True,
        rotate_center: Sequence[float] = (100, 100),
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.embed_dims = embed_dims
        self.num_feature_levels = num_feature_levels
        self.num_cams = num_cams
        self.rotate_prev_bev = rotate_prev_bev
        self.use_shift = use_shift
        self.use_can_bus = use_can_bus
        self.use_cams_embeds = use_cams_embeds
        self.rotate_center = rotate_center
        self.level_embeds = nn.Parameter(torch.empty(num_feature_levels, embed_dims))
        self.cams_embeds = nn.Parameter(torch.empty(num_cams, embed_dims))
        self.reference_points = nn.Linear(embed_dims, 3)
        self.can_bus_mlp = nn.Sequential(
            nn.Linear(18, embed_dims // 2),
            nn.ReLU(inplace=True),
            nn.Linear(embed_dims // 2, embed_dims),
            nn.ReLU(inplace=True),
            nn.LayerNorm(embed_dims),
        )
        self.init_weights()

    def init_weights(self) -> None:
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        # The attentions start from their own pattern of offsets, not from random ones.
        own = (MSDeformableAttention3D, TemporalSelfAttention, CustomMSDeformableAttention)
        for module in self.modules():
            if isinstance(module, own):
                module.init_weights()
        nn.init.normal_(self.level_embeds)
        nn.init.normal_(self.cams_embeds)
        xavier_linear(self.reference_points, self.can_bus_mlp[0], self.can_bus_mlp[2])

    def _shift(
        self,
        img_metas: Sequence[dict[str, Any]],
        grid_length: Sequence[float],
        bev_h: int,
        bev_w: int,
    ) -> np.ndarray:
        """Ego motion between the maps, (B, 2) as (x, y), in map widths and heights."""
        can_bus = np.array([meta["can_bus"] for meta in img_metas])
        distance = np.hypot(can_bus[:, 0], can_bus[:, 1])
        bearing = can_bus[:, -2] - np.arctan2(can_bus[:, 1], can_bus[:, 0])  # right of the heading
        y = distance * np.cos(bearing) / grid_length[0] / bev_h
        x = distance * np.sin(bearing) / grid_length[1] / bev_w
        return np.stack([x, y], -1) * self.use_shift

    def _flatten(self, mlvl_feats: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Join the levels: features (Nc, K, B, C), sizes (L, 2) and first rows (L,), int64."""
        features, sizes = [], []
        for level, feature in enumerate(mlvl_feats):
            sizes.append(feature.shape[-2:])
            feature = feature.flatten(3).permute(1, 0, 3, 2)  # (Nc, B, H * W, C)
            if self.use_cams_embeds:
                feature = feature + self.cams_embeds[:, None, None, :].to(feature.dtype)
            features.append(feature + self.level_embeds[level].to(feature.dtype))
        spatial_shapes = torch.as_tensor(sizes, dtype=torch.long, device=features[0].device)
        ends = spatial_shapes.prod(1).cumsum(0)
        level_start_index = torch.cat([ends.new_zeros(1), ends[:-1]])
        return torch.cat(features, 2).permute(0, 2, 1, 3), spatial_shapes, level_start_index

    def get_bev_features(
        self,
        mlvl_feats: Sequence[Tensor],
        bev_queries: Tensor,
        bev_h: int,
        bev_w: int,
        grid_length: Sequence[float] = (0.512, 0.512),
        bev_pos: Tensor | None = None,
        prev_bev: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Encode camera features into a BEV map.

        Args:
            mlvl_feats: per level (B, Nc, C, H, W).
            bev_queries: (Q, C), with Q = bev_h * bev_w.
            bev_h, bev_w: BEV rows (along y) and columns (along x).
            grid_length: height and width of a BEV cell, in metres.
            bev_pos: (B, C, bev_h, bev_w).
            prev_bev: (B, Q, C) or (Q, B, C), overwritten with the rotated map; or None.
            kwargs: `img_metas`; `can_bus` (18,) holds the motion since the previous frame at 0
                and 1 (x, y in metres), the heading at -2 (radians), its change at -1 (degrees).

        Returns:
            (B, Q, C).
        """
        img_metas = kwargs["img_metas"]
        batch = mlvl_feats[0].shape[0]
        bev_queries = bev_queries.unsqueeze(1).repeat(1, batch, 1)
        bev_pos = bev_pos.flatten(2).permute(2, 0, 1)
        shift = bev_queries.new_tensor(self._shift(img_metas, grid_length, bev_h, bev_w))

        if prev_bev is not None:
            if prev_bev.shape[1] == bev_h * bev_w:
                prev_bev = prev_bev.permute(1, 0, 2)
            if self.rotate_prev_bev:
                for item, meta in enumerate(img_metas):
                    image = prev_bev[:, item].reshape(bev_h, bev_w, -1).permute(2, 0, 1)
                    image = rotate(image, meta["can_bus"][-1], self.rotate_center)
                    prev_bev[:, item] = image.permute(1, 2, 0).reshape(bev_h * bev_w, -1)

        can_bus = bev_queries.new_tensor(np.array([meta["can_bus"] for meta in img_metas]))
        bev_queries = bev_queries + self.can_bus_mlp(can_bus)[None] * self.use_can_bus
        features, spatial_shapes, level_start_index = self._flatten(mlvl_feats)
        return self.encoder(
            bev_queries,
            features,
            features,
            bev_h=bev_h,
            bev_w=bev_w,
            bev_pos=bev_pos,
            spatial_shapes=spatial_shapes,
            level_start_index=level_start_index,
            prev_bev=prev_bev,
            shift=shift,
            **kwargs,
        )

    def forward(
        self,
        mlvl_feats: Sequence[Tensor],
        bev_queries: Tensor,
        object_query_embed: Tensor,
        bev_h: int,
        bev_w: int,
        grid_length: Sequence[float] = (0.512, 0.512),
        bev_pos: Tensor | None = None,
        reg_branches: nn.ModuleList | None = None,
        cls_branches: nn.ModuleList | None = None,
        prev_bev: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Encode the cameras, decode N objects.

        Args:
            object_query_embed: (N, 2C), position and content of each object query.
            reg_branches: box heads that refine the reference points, one per decoder layer.
            cls_branches: unused.
            mlvl_feats, bev_queries, bev_h, bev_w, grid_length, bev_pos, prev_bev, kwargs: as for
                `get_bev_features`.

        Returns:
            BEV map (Q, B, C), queries (layers, N, B, C), first reference points (B, N, 3) and
            refined ones (layers, B, N, 3).
        """
        bev_embed = self.get_bev_features(
            mlvl_feats,
            bev_queries,
            bev_h,
            bev_w,
            grid_length=grid_length,
            bev_pos=bev_pos,
            prev_bev=prev_bev,
            **kwargs,
        ).permute(1, 0, 2)
        batch, device = bev_embed.shape[1], bev_embed.device
        query_pos, query = object_query_embed.unsqueeze(1).expand(-1, batch, -1).chunk(2, dim=-1)
        reference_points = self.reference_points(query_pos.permute(1, 0, 2)).sigmoid()
        states, points = self.decoder(
            query,
            value=bev_embed,
            query_pos=query_pos,
            reference_points=reference_points,
            reg_branches=reg_branches,
            spatial_shapes=torch.tensor([[bev_h, bev_w]], device=device),
            level_start_index=torch.tensor([0], device=device),
            **kwargs,
        )
        return bev_embed, states, reference_points, points
