"""The options of the Groups that ship with turbo_physai: what they refuse, and what is default."""

import pytest

from turbo_physai.declarations.options import resolve
from turbo_physai.optimizations.bevformer.options import (
    DataOptions,
    SpatialCrossAttentionOptions,
    TrainingOptions,
)
from turbo_physai.optimizations.mmcv.options import CheckpointOptions
from turbo_physai.optimizations.options import CompileOptions


@pytest.mark.parametrize(
    ("schema", "given", "key", "accepted"),
    [
        (CompileOptions, {"speed": 2}, "speed", "mode: str | null, dynamic: bool | null, "),
        (CompileOptions, {"fullgraph": 1}, "fullgraph", "bool"),
        (CompileOptions, {"mode": 3}, "mode", "str | null"),
        (CompileOptions, {"mode": "default", "options": {}}, "options", "either a mode or options"),
        (SpatialCrossAttentionOptions, {"visibility": "all"}, "visibility", '"first_item" | '),
        (SpatialCrossAttentionOptions, {"visible": "per_item"}, "visible", "'visibility'?"),
        (TrainingOptions, {"fuse": True}, "fuse", "fused_optimizer: bool, channels_last: bool"),
        (TrainingOptions, {"channels_last": 1}, "channels_last", "bool"),
        (DataOptions, {"workers": 3}, "workers", "start_method: "),
        (DataOptions, {"start_method": "thread"}, "start_method", '"fork" | "spawn" | '),
        (DataOptions, {"prefetch_factor": 0}, "prefetch_factor", "must be >= 1"),
        (DataOptions, {"prefetch_factor": True}, "prefetch_factor", "int | null"),
        (DataOptions, {"pin_memory": 1}, "pin_memory", "bool | null"),
        (CheckpointOptions, {"trust": True}, "trust", "'trusted'?"),
        (CheckpointOptions, {"trusted": "yes"}, "trusted", "without quotes"),
    ],
)
def test_a_wrong_option_is_refused(schema, given, key, accepted):
    made, (fault,) = resolve(schema, given)
    assert made is None
    assert fault.key == key
    assert accepted in fault.accepted
