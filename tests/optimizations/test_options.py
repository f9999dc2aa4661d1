"""The options of the Groups that ship with turbo_physai: what they refuse, and what is default."""

import pytest

from turbo_physai.config import OptimizationConfigCatalog, load
from turbo_physai.config.selection import packaged
from turbo_physai.declarations.options import resolve
from turbo_physai.optimizations.bevformer.options import (
    DataOptions,
    SpatialCrossAttentionOptions,
    TrainingOptions,
)
from turbo_physai.optimizations.mmcv.options import CheckpointOptions
from turbo_physai.optimizations.options import CompileOptions
from turbo_physai.plan import collect, prepare

MODELS = ["bevformer", "maptr", "uniad", "vad"]


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


@pytest.mark.parametrize("model", MODELS)
def test_what_the_original_does_is_the_default(model):
    """Where outputs differ: dropout that is compiled draws other numbers unless it is told not to,
    and the published attention asks the first item of a batch."""
    pytest.importorskip("turbo_physai.model_configs")
    config = OptimizationConfigCatalog.packaged().resolve(load(packaged(model)))
    groups = prepare(config, collect(config, None)).groups
    name = "bevformer" if model == "maptr" else model
    assert groups[f"{name}.sca"].options.visibility == "first_item"
    for part in ("encoder", "decoder"):
        options = groups[f"{name}.compile.{part}"].options
        assert options.options == {"fallback_random": True}
