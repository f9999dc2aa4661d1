"""One-to-one matching of predictions and ground truth."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from projects.mmdet3d_plugin.core.bbox.util import code_distance, normalize_bbox


class HungarianAssigner3D:
    """The matching of least total cost: focal loss of the class plus distance of the box.

    Args:
        code_weights: (10,) weights of the numbers of a box code, those of the loss. Matchings of
            equal distance are common, and rounding decides between them: they must then be of equal
            loss too, or the training hangs on the last bit.
        cls_weight, reg_weight: weights of the two costs.
        alpha, gamma: of the focal loss.
    """

    def __init__(
        self,
        code_weights: Sequence[float],
        cls_weight: float = 2.0,
        reg_weight: float = 0.25,
        alpha: float = 0.25,
        gamma: float = 2.0,
    ) -> None:
        self.code_weights = torch.tensor(code_weights)
        self.cls_weight = cls_weight
        self.reg_weight = reg_weight
        self.alpha = alpha
        self.gamma = gamma

    @torch.no_grad()
    def assign(
        self, bbox_pred: Tensor, cls_pred: Tensor, gt_bboxes: Tensor, gt_labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Match min(N, G) pairs.

        Args:
            bbox_pred: (N, 10) box codes.
            cls_pred: (N, classes) logits.
            gt_bboxes: (G, 9) boxes.
            gt_labels: (G,) int64.

        Returns:
            Indices of the matched predictions and of their ground truth.
        """
        logits = cls_pred[:, gt_labels]
        prob = logits.sigmoid()
        hit = -F.logsigmoid(logits) * self.alpha * (1 - prob) ** self.gamma
        miss = -F.logsigmoid(-logits) * (1 - self.alpha) * prob**self.gamma
        distance = code_distance(bbox_pred[:, None], normalize_bbox(gt_bboxes), self.code_weights)
        cost = self.cls_weight * (hit - miss) + self.reg_weight * distance
        rows, columns = linear_sum_assignment(cost.cpu().numpy())
        device = bbox_pred.device
        return torch.from_numpy(rows).to(device), torch.from_numpy(columns).to(device)
