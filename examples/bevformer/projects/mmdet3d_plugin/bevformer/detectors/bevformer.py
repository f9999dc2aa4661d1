"""The detector: images in, losses out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from projects.mmdet3d_plugin.models.utils.grid_mask import GridMask

if TYPE_CHECKING:
    from collections.abc import Sequence


class BEVFormer(nn.Module):
    """BEVFormer (arXiv 2203.17270).

    Args:
        img_backbone: images to features.
        img_neck: backbone features to levels of one width.
        pts_bbox_head: levels to BEV map and boxes.
        use_grid_mask: mask the training images.
    """

    def __init__(
        self,
        img_backbone: nn.Module,
        img_neck: nn.Module,
        pts_bbox_head: nn.Module,
        use_grid_mask: bool = True,
    ) -> None:
        super().__init__()
        self.img_backbone = img_backbone
        self.img_neck = img_neck
        self.pts_bbox_head = pts_bbox_head
        self.use_grid_mask = use_grid_mask
        self.grid_mask = GridMask(True, True, rotate=1, offset=False, ratio=0.5, mode=1, prob=0.7)

    def extract_feat(self, img: Tensor) -> list[Tensor]:
        """Images (B, Nc, 3, H, W) to levels (B, Nc, C, h, w)."""
        batch, cameras = img.shape[:2]
        img = img.flatten(0, 1)
        if self.use_grid_mask:
            img = self.grid_mask(img)
        levels = self.img_neck(self.img_backbone(img))
        return [level.view(batch, cameras, *level.shape[1:]) for level in levels]

    @torch.no_grad()
    def obtain_history_bev(
        self, imgs_queue: Tensor, img_metas_list: Sequence[Sequence[dict[str, Any]]]
    ) -> Tensor | None:
        """BEV map (B, Q, C) of the frame before the last, frame by frame in eval mode.

        Args:
            imgs_queue: (B, T - 1, Nc, 3, H, W).
            img_metas_list: per item, per frame.
        """
        self.eval()
        prev_bev = None
        for frame in range(imgs_queue.shape[1]):
            img_metas = [metas[frame] for metas in img_metas_list]
            if not img_metas[0]["prev_bev_exists"]:
                prev_bev = None
            levels = self.extract_feat(imgs_queue[:, frame])
            prev_bev = self.pts_bbox_head(levels, img_metas, prev_bev, only_bev=True)
        self.train()
        return prev_bev

    def forward_train(
        self,
        img: Tensor,
        img_metas: Sequence[Sequence[dict[str, Any]]],
        gt_bboxes_3d: Sequence[Tensor],
        gt_labels_3d: Sequence[Tensor],
    ) -> dict[str, Tensor]:
        """Losses of the last frame of a queue.

        Args:
            img: (B, T, Nc, 3, H, W), the oldest frame first.
            img_metas: per item, per frame: `lidar2img`, `img_shape`, `can_bus`, `prev_bev_exists`.
            gt_bboxes_3d: per item (G, 9), gravity centre, size, yaw, velocity.
            gt_labels_3d: per item (G,) int64.
        """
        prev_bev = self.obtain_history_bev(img[:, :-1], img_metas)
        last_metas = [metas[-1] for metas in img_metas]
        if not last_metas[0]["prev_bev_exists"]:
            prev_bev = None
        levels = self.extract_feat(img[:, -1])
        predictions = self.pts_bbox_head(levels, last_metas, prev_bev)
        return self.pts_bbox_head.loss(gt_bboxes_3d, gt_labels_3d, predictions)

    def forward(self, **kwargs: Any) -> dict[str, Tensor]:
        """See `forward_train`."""
        return self.forward_train(**kwargs)
