"""spatial_cross_attention tells every mistake in one error that names it."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import SPATIAL
from turbo_physai.kernels import spatial_cross_attention

MISTAKES = {
    "value must be (B, N, S, H, D), not (2, 3, 69, 24)": lambda i: {"value": i.value.flatten(3)},
    "offsets must be (B, Q, H, L, P, 2), not (2, 11, 3, 2, 4)": lambda i: {
        "offsets": i.offsets[..., 0]
    },
    "offsets must be (2, 11, 3, 2, 4, 2)": lambda i: {"offsets": i.offsets[:1]},
    "logits must be (2, 11, 3, 8)": lambda i: {"logits": i.logits[..., :7]},
    "reference_points_cam must be (3, 2, 11, 2, 2)": lambda i: {
        "reference_points_cam": i.reference_points_cam[:2]
    },
    "visibility must be (3, 2, 11, 2)": lambda i: {"visibility": i.visibility[..., :1]},
    "visibility must be one of bool, uint8": lambda i: {"visibility": i.visibility.float()},
    "a multiple of 3 points, the number of heights of reference_points_cam, not 4": lambda i: {
        "reference_points_cam": i.reference_points_cam[:, :, :, [0, 1, 1]],
        "visibility": i.visibility[..., [0, 1, 1]],
    },
    "level 1 (3 x 5, first row 60) does not lie in the 69 rows": lambda i: {
        "level_start_index": torch.tensor([0, 60])
    },
    "logits must be one of float16, bfloat16, float32, float64, not int64": lambda i: {
        "logits": i.logits.long()
    },
    "visibility is on meta, value on cpu": lambda i: {"visibility": i.visibility.to("meta")},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_gets_one_error_that_names_it(message):
    inputs = SPATIAL.make()
    inputs = inputs._replace(**MISTAKES[message](inputs))
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        SPATIAL.function(*inputs)
    assert message in str(caught.value)


def test_reference_points_that_want_a_gradient_are_refused():
    inputs = SPATIAL.make()
    inputs.reference_points_cam.requires_grad_()
    with pytest.raises(RuntimeError, match=r"pass reference_points_cam\.detach\(\)"):
        spatial_cross_attention(*inputs[:7])
    with torch.no_grad():
        assert spatial_cross_attention(*inputs[:7]).any()
