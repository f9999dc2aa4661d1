"""BEV queries gather features from the previous BEV map and from the cameras."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from .transformer_layer import TransformerLayer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


@contextmanager
def _without_tf32() -> Iterator[None]:
    """Projections need more than the ten mantissa bits of TF32."""
    matmul = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = matmul


class BEVFormerEncoder(nn.Module):
    """A stack of `BEVFormerLayer`s over one set of reference points (arXiv 2203.17270, section 3).

    Args:
        layers: the encoder layers.
        pc_range: x, y, z minimum, then maximum of the BEV range, in metres.
        num_points_in_pillar: heights Z of each BEV pillar.
        return_intermediate: return every layer's output, stacked.
    """

    def __init__(
        self,
        layers: Iterable[nn.Module],
        pc_range: Sequence[float],
        num_points_in_pillar: int = 4,
        return_intermediate: bool = False,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.num_layers = len(self.layers)
        self.pc_range = pc_range
        self.num_points_in_pillar = num_points_in_pillar
        self.return_intermediate = return_intermediate

    @staticmethod
    def get_reference_points(
        H: int,
        W: int,
        Z: float = 8,
        num_points_in_pillar: int = 4,
        dim: str = "3d",
        bs: int = 1,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float,
    ) -> Tensor:
        """Centres of the BEV cells, 0 to 1, row by row.

        Args:
            H, W: BEV rows and columns.
            Z: height of a pillar in metres; its outermost points lie half a metre inside.
            num_points_in_pillar: points per pillar.
            dim: "3d" for pillars, "2d" for cells.
            bs: batch size B.
            device, dtype: of the result.

        Returns:
            (B, num_points_in_pillar, H * W, 3) as (x, y, z), or (B, H * W, 1, 2) as (x, y).
        """
        options = {"device": device, "dtype": dtype}
        xs = torch.linspace(0.5, W - 0.5, W, **options) / W
        ys = torch.linspace(0.5, H - 0.5, H, **options) / H
        if dim == "2d":
            y, x = torch.meshgrid(ys, xs, indexing="ij")
            return torch.stack([x, y], -1).view(1, H * W, 1, 2).repeat(bs, 1, 1, 1)
        if dim == "3d":
            zs = torch.linspace(0.5, Z - 0.5, num_points_in_pillar, **options) / Z
            z, y, x = torch.meshgrid(zs, ys, xs, indexing="ij")
            return torch.stack([x, y, z], -1).flatten(1, 2)[None].repeat(bs, 1, 1, 1)
        raise ValueError(f"dim is {dim!r}; accepted are '2d' and '3d'")

    def point_sampling(
        self,
        reference_points: Tensor,
        pc_range: Sequence[float],
        img_metas: Sequence[dict[str, Any]],
    ) -> tuple[Tensor, Tensor]:
        """Project pillar points into the cameras, in fp32.

        Args:
            reference_points: (B, Z, Q, 3) as (x, y, z), 0 to 1 in the BEV range.
            pc_range: x, y, z minimum, then maximum, in metres.
            img_metas: per item `lidar2img` (Nc matrices 4 x 4, to pixels); the first item's
                `img_shape[0]` (height, width, ...) is the size of every image.

        Returns:
            Points (Nc, B, Q, Z, 2) as (x, y), 0 to 1 across the image, and whether a camera sees
            them, (Nc, B, Q, Z) bool.
        """
        matrices = np.asarray([meta["lidar2img"] for meta in img_metas])
        lidar2img = reference_points.new_tensor(matrices)  # (B, Nc, 4, 4)
        cameras = lidar2img.shape[1]
        low = reference_points.new_tensor(pc_range[:3])
        high = reference_points.new_tensor(pc_range[3:])
        points = reference_points * (high - low) + low
        points = torch.cat([points, torch.ones_like(points[..., :1])], -1).permute(1, 0, 2, 3)
        heights, batch, length, _ = points.shape
        points = points.view(heights, batch, 1, length, 4, 1).repeat(1, 1, cameras, 1, 1, 1)
        lidar2img = lidar2img.view(1, batch, cameras, 1, 4, 4)
        lidar2img = lidar2img.repeat(heights, 1, 1, length, 1, 1)
        with _without_tf32():
            pixels = torch.matmul(lidar2img.float(), points.float()).squeeze(-1)

        eps = 1e-5
        depth = pixels[..., 2:3]
        visible = depth > eps
        height, width = img_metas[0]["img_shape"][0][:2]
        pixels = pixels[..., :2] / depth.clamp(min=eps)
        pixels = pixels / pixels.new_tensor([width, height])
        visible = visible & (pixels > 0).all(-1, keepdim=True) & (pixels < 1).all(-1, keepdim=True)
        return pixels.permute(2, 1, 3, 0, 4), visible.permute(2, 1, 3, 0, 4).squeeze(-1)

    def forward(
        self,
        bev_query: Tensor,
        key: Tensor,
        value: Tensor,
        *args: Any,
        bev_h: int | None = None,
        bev_w: int | None = None,
        bev_pos: Tensor | None = None,
        spatial_shapes: Tensor | None = None,
        level_start_index: Tensor | None = None,
        valid_ratios: Tensor | None = None,
        prev_bev: Tensor | None = None,
        shift: Tensor | float = 0.0,
        **kwargs: Any,
    ) -> Tensor:
        """Encode the cameras into a BEV map.

        Args:
            bev_query: (Q, B, C), with Q = bev_h * bev_w.
            key, value: (Nc, K, B, C) camera features, all levels along K.
            bev_h, bev_w: BEV rows and columns.
            bev_pos: (Q, B, C) positional encoding.
            spatial_shapes: (L, 2) int64, sizes of the levels.
            level_start_index: (L,) int64.
            valid_ratios: unused.
            prev_bev: (Q, B, C) previous BEV map, or None on the first frame.
            shift: (B, 2) as (x, y), by how much of the map the previous one's points move.
            kwargs: `img_metas`, and whatever else the layers take.

        Returns:
            (B, Q, C), or (layers, B, Q, C) with `return_intermediate`.
        """
        batch = bev_query.shape[1]
        options = {"bs": batch, "device": bev_query.device, "dtype": bev_query.dtype}
        pillar = self.pc_range[5] - self.pc_range[2]
        ref_3d = self.get_reference_points(
            bev_h, bev_w, pillar, self.num_points_in_pillar, dim="3d", **options
        )
        ref_2d = self.get_reference_points(bev_h, bev_w, dim="2d", **options)
        reference_points_cam, bev_mask = self.point_sampling(
            ref_3d, self.pc_range, kwargs["img_metas"]
        )

        bev_query, bev_pos = bev_query.permute(1, 0, 2), bev_pos.permute(1, 0, 2)
        previous_ref = ref_2d
        if prev_bev is not None:
            # Rows of the queue interleave (previous, current); the current half stays as it entered
            # the first layer, as published.
            prev_bev = torch.stack([prev_bev.permute(1, 0, 2), bev_query], 1).flatten(0, 1)
            previous_ref = ref_2d + (shift[:, None, None] if isinstance(shift, Tensor) else shift)
        ref_2d = torch.stack([previous_ref, ref_2d], 1).flatten(0, 1)

        outputs = []
        for layer in self.layers:
            bev_query = layer(
                bev_query,
                key,
                value,
                *args,
                bev_pos=bev_pos,
                ref_2d=ref_2d,
                ref_3d=ref_3d,
                bev_h=bev_h,
                bev_w=bev_w,
                spatial_shapes=spatial_shapes,
                level_start_index=level_start_index,
                reference_points_cam=reference_points_cam,
                bev_mask=bev_mask,
                prev_bev=prev_bev,
                **kwargs,
            )
            outputs.append(bev_query)
        return torch.stack(outputs) if self.return_intermediate else bev_query


class BEVFormerLayer(TransformerLayer):
    """Temporal self-attention, spatial cross-attention and feed-forward."""

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        bev_pos: Tensor | None = None,
        query_pos: Tensor | None = None,
        key_pos: Tensor | None = None,
        attn_masks: Any = None,
        query_key_padding_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        ref_2d: Tensor | None = None,
        ref_3d: Tensor | None = None,
        bev_h: int | None = None,
        bev_w: int | None = None,
        reference_points_cam: Tensor | None = None,
        mask: Tensor | None = None,
        spatial_shapes: Tensor | None = None,
        level_start_index: Tensor | None = None,
        prev_bev: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """One encoder layer.

        Args:
            query: (B, Q, C).
            key, value: (Nc, K, B, C) camera features.
            bev_pos: (B, Q, C), added to the query of the temporal attention.
            query_pos: (B, Q, C), added to the query of the spatial attention.
            query_key_padding_mask, key_padding_mask: for the temporal and the spatial attention.
            ref_2d: (2B, Q, 1, 2); ref_3d: (B, Z, Q, 3).
            bev_h, bev_w: BEV rows and columns.
            reference_points_cam: (Nc, B, Q, Z, 2).
            spatial_shapes: (L, 2) int64; level_start_index: (L,) int64, of the camera features.
            prev_bev: (2B, Q, C) queue of maps, or None on the first frame.
            kwargs: `bev_mask` (Nc, B, Q, Z) bool among them.

        Returns:
            (B, Q, C).
        """
        temporal, spatial = self.attentions
        query = temporal(
            query,
            prev_bev,
            prev_bev,
            query_pos=bev_pos,
            key_padding_mask=query_key_padding_mask,
            reference_points=ref_2d,
            spatial_shapes=torch.tensor([[bev_h, bev_w]], device=query.device),
            level_start_index=torch.tensor([0], device=query.device),
            **kwargs,
        )
        query = spatial(
            self.norms[0](query),
            key,
            value,
            query_pos=query_pos,
            key_padding_mask=key_padding_mask,
            reference_points=ref_3d,
            reference_points_cam=reference_points_cam,
            spatial_shapes=spatial_shapes,
            level_start_index=level_start_index,
            **kwargs,
        )
        return self.norms[2](self.ffns[0](self.norms[1](query)))
