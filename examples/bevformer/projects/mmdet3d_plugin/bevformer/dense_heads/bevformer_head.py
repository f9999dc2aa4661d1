"""Detection head: classes and boxes from every decoder layer, and their losses."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from projects.mmdet3d_plugin.bevformer.modules.decoder import inverse_sigmoid
from projects.mmdet3d_plugin.core.bbox.assigners.hungarian_assigner_3d import HungarianAssigner3D
from projects.mmdet3d_plugin.core.bbox.util import code_distance, normalize_bbox
from projects.mmdet3d_plugin.models.utils.positional_encoding import LearnedPositionalEncoding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projects.mmdet3d_plugin.bevformer.modules.transformer import PerceptionTransformer

CODE_WEIGHTS = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.2, 0.2)


def sigmoid_focal_loss(
    logits: Tensor, target: Tensor, alpha: float = 0.25, gamma: float = 2.0
) -> Tensor:
    """Focal loss (arXiv 1708.02002) of each logit against a 0/1 target of the same shape."""
    prob = logits.sigmoid()
    wrong = torch.where(target > 0, 1 - prob, prob)
    balance = torch.where(target > 0, alpha, 1 - alpha)
    loss = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    return balance * wrong**gamma * loss


class BEVFormerHead(nn.Module):
    """DETR3D's head (arXiv 2110.06922) on BEV features.

    Args:
        transformer: encoder and decoder.
        bev_h, bev_w: BEV rows (along y) and columns (along x).
        num_classes: object classes.
        num_query: object queries N.
        pc_range: x, y, z minimum, then maximum of the BEV range, in metres.
        num_reg_fcs: hidden layers of each branch.
        cls_weight, reg_weight: weights of the two losses.
    """

    def __init__(
        self,
        transformer: PerceptionTransformer,
        bev_h: int,
        bev_w: int,
        num_classes: int,
        num_query: int,
        pc_range: Sequence[float],
        num_reg_fcs: int = 2,
        cls_weight: float = 2.0,
        reg_weight: float = 0.25,
    ) -> None:
        super().__init__()
        self.transformer = transformer
        self.bev_h = bev_h
        self.bev_w = bev_w
        self.num_classes = num_classes
        self.pc_range = pc_range
        self.real_w = pc_range[3] - pc_range[0]
        self.real_h = pc_range[4] - pc_range[1]
        self.cls_weight = cls_weight
        self.reg_weight = reg_weight
        self.assigner = HungarianAssigner3D(CODE_WEIGHTS, cls_weight, reg_weight)
        dims, layers = transformer.embed_dims, transformer.decoder.num_layers
        self.positional_encoding = LearnedPositionalEncoding(dims // 2, bev_h, bev_w)
        self.bev_embedding = nn.Embedding(bev_h * bev_w, dims)
        self.query_embedding = nn.Embedding(num_query, dims * 2)
        classify, regress = [], []
        for _ in range(num_reg_fcs):
            classify += [nn.Linear(dims, dims), nn.LayerNorm(dims), nn.ReLU(inplace=True)]
            regress += [nn.Linear(dims, dims), nn.ReLU()]
        classify.append(nn.Linear(dims, num_classes))
        regress.append(nn.Linear(dims, len(CODE_WEIGHTS)))
        nn.init.constant_(classify[-1].bias, -math.log(99))  # every class starts at 1 %
        self.cls_branches = nn.ModuleList(
            copy.deepcopy(nn.Sequential(*classify)) for _ in range(layers)
        )
        self.reg_branches = nn.ModuleList(
            copy.deepcopy(nn.Sequential(*regress)) for _ in range(layers)
        )
        self.register_buffer("code_weights", torch.tensor(CODE_WEIGHTS), persistent=False)

    def forward(
        self,
        mlvl_feats: Sequence[Tensor],
        img_metas: Sequence[dict[str, Any]],
        prev_bev: Tensor | None = None,
        only_bev: bool = False,
    ) -> Any:
        """Detect objects.

        Args:
            mlvl_feats: per level (B, Nc, C, H, W).
            img_metas: per item `lidar2img`, `img_shape`, `can_bus`.
            prev_bev: (B, Q, C) or None.
            only_bev: stop at the BEV map.

        Returns:
            The map (B, Q, C) if `only_bev`, else a dict with `bev_embed` (Q, B, C),
            `all_cls_scores` (layers, B, N, classes), logits, and `all_bbox_preds`
            (layers, B, N, 10), box codes in metres.
        """
        arguments = {
            "bev_h": self.bev_h,
            "bev_w": self.bev_w,
            "grid_length": (self.real_h / self.bev_h, self.real_w / self.bev_w),
            "bev_pos": self.positional_encoding(mlvl_feats[0].shape[0]),
            "img_metas": img_metas,
            "prev_bev": prev_bev,
        }
        bev_queries = self.bev_embedding.weight
        if only_bev:
            return self.transformer.get_bev_features(mlvl_feats, bev_queries, **arguments)
        bev_embed, states, first_points, points = self.transformer(
            mlvl_feats,
            bev_queries,
            self.query_embedding.weight,
            reg_branches=self.reg_branches,
            **arguments,
        )
        scores, boxes = [], []
        for layer, state in enumerate(states.permute(0, 2, 1, 3)):
            scores.append(self.cls_branches[layer](state))
            reference = first_points if layer == 0 else points[layer - 1]
            boxes.append(self._to_metres(self.reg_branches[layer](state), reference))
        return {
            "bev_embed": bev_embed,
            "all_cls_scores": torch.stack(scores),
            "all_bbox_preds": torch.stack(boxes),
        }

    def _to_metres(self, code: Tensor, reference: Tensor) -> Tensor:
        """Place box codes (B, N, 10) relative to reference points (B, N, 3), 0 to 1."""
        low, high = code.new_tensor(self.pc_range).chunk(2)
        centre = torch.cat([code[..., :2], code[..., 4:5]], -1)
        centre = (centre + inverse_sigmoid(reference)).sigmoid() * (high - low) + low
        return torch.cat([centre[..., :2], code[..., 2:4], centre[..., 2:], code[..., 5:]], -1)

    def loss(
        self,
        gt_bboxes_list: Sequence[Tensor],
        gt_labels_list: Sequence[Tensor],
        preds_dicts: dict[str, Tensor],
    ) -> dict[str, Tensor]:
        """Losses of every decoder layer, the last one's without a prefix.

        Args:
            gt_bboxes_list: per item (G, 9), gravity centre, size, yaw, velocity.
            gt_labels_list: per item (G,) int64.
            preds_dicts: what `forward` returned.
        """
        losses = {}
        last = len(preds_dicts["all_cls_scores"]) - 1
        layers = zip(preds_dicts["all_cls_scores"], preds_dicts["all_bbox_preds"], strict=True)
        for layer, (scores, boxes) in enumerate(layers):
            prefix = "" if layer == last else f"d{layer}."
            losses[f"{prefix}loss_cls"], losses[f"{prefix}loss_bbox"] = self.loss_single(
                scores, boxes, gt_bboxes_list, gt_labels_list
            )
        return losses

    def loss_single(
        self,
        cls_scores: Tensor,
        bbox_preds: Tensor,
        gt_bboxes_list: Sequence[Tensor],
        gt_labels_list: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Focal and box loss of one decoder layer, per matched object."""
        target = torch.zeros_like(cls_scores)
        matched = 0
        box_loss = bbox_preds.new_zeros(())
        for item, (boxes, labels) in enumerate(zip(gt_bboxes_list, gt_labels_list, strict=True)):
            rows, columns = self.assigner.assign(bbox_preds[item], cls_scores[item], boxes, labels)
            target[item, rows, labels[columns]] = 1
            matched += len(rows)
            distance = code_distance(
                bbox_preds[item, rows], normalize_bbox(boxes[columns]), self.code_weights
            )
            box_loss = box_loss + distance.sum()
        cls_loss = sigmoid_focal_loss(cls_scores, target).sum()
        count = max(matched, 1)
        return self.cls_weight * cls_loss / count, self.reg_weight * box_loss / count
