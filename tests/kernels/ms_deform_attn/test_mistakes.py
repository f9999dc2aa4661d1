"""ms_deform_attn tells every mistake in one error that names it."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import MS_DEFORM_ATTN

MISTAKES = {
    "value must be (B, S, H, D), not (2, 69, 24)": lambda i: {"value": i.value.flatten(2)},
    "sampling_locations must be (B, Q, H, L, P, 2), not (2, 11, 3, 2, 4)": lambda i: {
        "sampling_locations": i.sampling_locations[..., 0]
    },
    "sampling_locations must be (2, 11, 3, 2, 4, 2)": lambda i: {
        "sampling_locations": i.sampling_locations[:1]
    },
    "attention_weights must be (2, 11, 3, 2, 4)": lambda i: {
        "attention_weights": i.attention_weights[..., :3]
    },
    "spatial_shapes must be (2, 2)": lambda i: {"spatial_shapes": i.spatial_shapes[:1]},
    "level_start_index must be (2,)": lambda i: {"level_start_index": i.level_start_index[:1]},
    "level 1 (3 x 5, first row 60) does not lie in the 69 rows": lambda i: {
        "level_start_index": torch.tensor([0, 60])
    },
    "level 0 (6 x 9, first row -1) does not lie": lambda i: {
        "level_start_index": torch.tensor([-1, 54])
    },
    "spatial_shapes must be one of int32, int64, not float32": lambda i: {
        "spatial_shapes": i.spatial_shapes.float()
    },
    "sampling_locations is on meta, value on cpu": lambda i: {
        "sampling_locations": i.sampling_locations.to("meta")
    },
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_gets_one_error_that_names_it(message):
    inputs = MS_DEFORM_ATTN.make()
    inputs = inputs._replace(**MISTAKES[message](inputs))
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        MS_DEFORM_ATTN.function(*inputs)
    assert message in str(caught.value)
