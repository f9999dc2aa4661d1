"""temporal_self_attention tells every mistake in one error that names it."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import TEMPORAL

MISTAKES = {
    "value must be (B * T, S, H, D), not (4, 69, 24)": lambda i: {"value": i.value.flatten(2)},
    "value must have 2 * 2 maps": lambda i: {"value": i.value[:3]},
    "offsets must be (B, Q, H, T, L, P, 2), not (2, 11, 3, 2, 2, 4)": lambda i: {
        "offsets": i.offsets[..., 0]
    },
    "offsets must be (2, 11, 3, 2, 2, 4, 2)": lambda i: {"offsets": i.offsets[:, :, :2]},
    "logits must be (2, 11, 3, 2, 8)": lambda i: {"logits": i.logits[..., :7]},
    "reference_points must be (4, 11, 2, 2)": lambda i: {
        "reference_points": i.reference_points[:2]
    },
    "level 1 (3 x 5, first row 60) does not lie in the 69 rows": lambda i: {
        "level_start_index": torch.tensor([0, 60])
    },
    "logits must be one of float16, bfloat16, float32, float64, not int64": lambda i: {
        "logits": i.logits.long()
    },
    "reference_points is on meta, value on cpu": lambda i: {
        "reference_points": i.reference_points.to("meta")
    },
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_gets_one_error_that_names_it(message):
    inputs = TEMPORAL.make()
    inputs = inputs._replace(**MISTAKES[message](inputs))
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        TEMPORAL.function(*inputs)
    assert message in str(caught.value)
