"""Each attention module gives on the fused operators what it gives as published: outputs and every
gradient, with the same dropout masks."""

import pytest
import torch

from turbo_physai.engine.metrics import collecting
from turbo_physai.optimizations.bevformer import attention as fused
from turbo_physai.optimizations.bevformer.options import SpatialCrossAttentionOptions

C, HEADS = 32, 4
BATCHES = pytest.mark.parametrize("batch", [1, 2])
MODES = pytest.mark.parametrize(
    ("training", "dropout"), [(True, 0.0), (True, 0.3), (False, 0.3)], ids=str
)


def levels(*sizes):
    shapes = torch.tensor(sizes)
    areas = shapes.prod(1)
    return {"spatial_shapes": shapes, "level_start_index": areas.cumsum(0) - areas}


def needing_gradients(*shape):
    return torch.randn(*shape, requires_grad=True)


@pytest.fixture
def spatial(disturbed):
    from projects.mmdet3d_plugin.bevformer.modules.spatial_cross_attention import (
        MSDeformableAttention3D,
        SpatialCrossAttention,
    )

    def make(dropout=0.0, num_levels=2):
        inner = MSDeformableAttention3D(C, HEADS, num_levels=num_levels, num_points=8)
        return disturbed(
            SpatialCrossAttention(C, num_cams=3, dropout=dropout, deformable_attention=inner)
        )

    return make


def fused_forward(module, **options):
    return fused.spatial_cross_attention_forward(
        type(module).forward, SpatialCrossAttentionOptions(**options)
    )


def spatial_inputs(batch, queries=15, cameras=3, heights=4, seen=0.2):
    sizes = levels((6, 9), (3, 5))
    value = needing_gradients(cameras, 69, batch, C)
    points = torch.rand(cameras, batch, queries, heights, 2) * 1.4 - 0.2
    mask = torch.rand(cameras, batch, queries, heights) < seen
    mask[:, :, 0] = False  # a query that no camera sees
    mask[0, :, 1] = True
    arguments = {
        **sizes,
        "query": needing_gradients(batch, queries, C),
        "key": value,
        "value": value,
        "query_pos": needing_gradients(batch, queries, C),
        "reference_points_cam": points,
        "bev_mask": mask,
    }
    return arguments, (arguments["query"], value, arguments["query_pos"])


@BATCHES
@MODES
@pytest.mark.parametrize("residual", [False, True])
def test_spatial_cross_attention(spatial, same, batch, training, dropout, residual):
    module = spatial(dropout).train(training)
    arguments, inputs = spatial_inputs(batch)
    if residual:
        arguments["residual"] = needing_gradients(*arguments["query"].shape)
        inputs = (*inputs, arguments["residual"])
    forward = fused_forward(module)
    same(module, lambda: module(**arguments), lambda: forward(module, **arguments), *inputs)


def test_each_item_may_be_seen_by_its_own_cameras(spatial):
    module = spatial().eval()
    forward = fused_forward(module, visibility="per_item")
    arguments, _ = spatial_inputs(batch=2)
    together = forward(module, **arguments)
    for item in range(2):
        alone = {
            name: tensor[:, :, item : item + 1] if name in ("key", "value") else tensor
            for name, tensor in arguments.items()
        }
        for name in ("query", "query_pos"):
            alone[name] = arguments[name][item : item + 1]
        for name in ("reference_points_cam", "bev_mask"):
            alone[name] = arguments[name][:, item : item + 1]
        torch.testing.assert_close(together[item : item + 1], module(**alone), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("visibility", "batch"), [("first_item", 1), ("per_item", 2)])
def test_nothing_is_warned_of_where_the_choice_makes_no_difference(spatial, visibility, batch):
    assert warnings_of(spatial(), visibility, batch) == []


def test_the_report_names_the_choice_when_a_batch_has_other_items(spatial):
    (warning,) = warnings_of(spatial(), "first_item", batch=2)
    assert "visibility: per_item" in warning


def warnings_of(module, visibility, batch):
    """What the report is told in two forwards."""
    told = []

    class Metrics:
        def warn(self, text):
            told.append(text)

    with collecting(Metrics()):
        forward = fused_forward(module, visibility=visibility)
    arguments, _ = spatial_inputs(batch)
    for _ in range(2):
        forward(module, **arguments)
    return told


def test_a_camera_that_sees_nothing(spatial, same):
    module = spatial()
    arguments, inputs = spatial_inputs(batch=1)
    arguments["bev_mask"][1:] = False
    forward = fused_forward(module)
    same(module, lambda: module(**arguments), lambda: forward(module, **arguments), *inputs)


@pytest.fixture
def temporal(disturbed):
    from projects.mmdet3d_plugin.bevformer.modules.temporal_self_attention import (
        TemporalSelfAttention,
    )

    def make(dropout=0.0, **options):
        return disturbed(TemporalSelfAttention(C, HEADS, num_levels=1, dropout=dropout, **options))

    return make


def temporal_inputs(batch, with_previous, rows=5, columns=6):
    queries = rows * columns
    arguments = {
        **levels((rows, columns)),
        "query": needing_gradients(batch, queries, C),
        "query_pos": needing_gradients(batch, queries, C),
        "reference_points": torch.rand(2 * batch, queries, 1, 2),
    }
    inputs = (arguments["query"], arguments["query_pos"])
    if with_previous:
        value = needing_gradients(2 * batch, queries, C)
        arguments |= {"key": value, "value": value}
        inputs = (*inputs, value)
    return arguments, inputs


@BATCHES
@MODES
@pytest.mark.parametrize("with_previous", [False, True])
def test_temporal_self_attention(temporal, same, batch, training, dropout, with_previous):
    module = temporal(dropout).train(training)
    arguments, inputs = temporal_inputs(batch, with_previous)
    same(
        module,
        lambda: module(**arguments),
        lambda: fused.temporal_self_attention_forward(module, **arguments),
        *inputs,
    )


def test_temporal_self_attention_with_a_mask_an_identity_and_queries_first(temporal, same):
    module = temporal(batch_first=False)
    arguments, _ = temporal_inputs(2, with_previous=True)
    arguments["key_padding_mask"] = torch.rand(4, 30) < 0.3
    arguments["identity"] = needing_gradients(2, 30, C)
    for name in ("query", "query_pos", "value", "identity"):
        arguments[name] = arguments[name].detach().transpose(0, 1).clone().requires_grad_()
    del arguments["key"]
    same(
        module,
        lambda: module(**arguments),
        lambda: fused.temporal_self_attention_forward(module, **arguments),
        arguments["query"],
        arguments["value"],
        arguments["identity"],
    )


@pytest.fixture
def decoder(disturbed):
    from projects.mmdet3d_plugin.bevformer.modules.decoder import CustomMSDeformableAttention

    def make(dropout=0.0, **options):
        return disturbed(
            CustomMSDeformableAttention(C, HEADS, num_levels=1, dropout=dropout, **options)
        )

    return make


def decoder_inputs(batch, queries=7, rows=5, columns=6):
    arguments = {
        **levels((rows, columns)),
        "query": needing_gradients(queries, batch, C),
        "value": needing_gradients(rows * columns, batch, C),
        "query_pos": needing_gradients(queries, batch, C),
        "reference_points": torch.rand(batch, queries, 1, 2, requires_grad=True),
    }
    names = ("query", "value", "query_pos", "reference_points")
    return arguments, tuple(arguments[name] for name in names)


@BATCHES
@MODES
def test_decoder_attention_and_the_gradient_of_where_it_looks(
    decoder, same, batch, training, dropout
):
    module = decoder(dropout).train(training)
    arguments, inputs = decoder_inputs(batch)
    same(
        module,
        lambda: module(**arguments),
        lambda: fused.decoder_attention_forward(module, **arguments),
        *inputs,
    )


@pytest.mark.parametrize(
    ("supports", "module", "make", "change"),
    [
        ("spatial_cross_attention", "spatial", spatial_inputs, {"bev_mask": None}),
        ("spatial_cross_attention", "spatial", spatial_inputs, {"reference_points_cam": None}),
        ("spatial_cross_attention", "spatial", spatial_inputs, {"key": None, "value": None}),
        (
            "spatial_cross_attention",
            "spatial",
            spatial_inputs,
            {"reference_points_cam": torch.rand(3, 1, 15, 3, 2)},  # 8 points, 3 heights
        ),
        (
            "deformable_attention",
            "temporal",
            lambda batch: temporal_inputs(batch, with_previous=False),
            {"reference_points": torch.rand(2, 30, 1, 4)},  # boxes
        ),
        (
            "deformable_attention",
            "decoder",
            decoder_inputs,
            {"reference_points": torch.rand(1, 7, 1, 4)},
        ),
        ("deformable_attention", "decoder", decoder_inputs, {"residual": torch.zeros(7, 1, C)}),
    ],
)
def test_what_a_kernel_cannot_do_is_left_to_the_original(request, supports, module, make, change):
    module = request.getfixturevalue(module)()
    condition = getattr(fused, f"supports_{supports}")
    arguments, _ = make(1)
    assert condition(module, **arguments) is True
    assert condition(module, **(arguments | change)) is False
    module.fp16_enabled = True
    assert condition(module, **arguments) is False
