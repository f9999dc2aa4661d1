"""The three attentions compute what their definitions say."""

import pytest
import torch
from projects.mmdet3d_plugin.bevformer.modules.decoder import CustomMSDeformableAttention
from projects.mmdet3d_plugin.bevformer.modules.multi_scale_deformable_attn_function import (
    multi_scale_deformable_attn_pytorch,
)
from projects.mmdet3d_plugin.bevformer.modules.spatial_cross_attention import (
    MSDeformableAttention3D,
    SpatialCrossAttention,
)
from projects.mmdet3d_plugin.bevformer.modules.temporal_self_attention import TemporalSelfAttention

C, HEADS = 16, 4
LEVELS = torch.tensor([[4, 6], [2, 3]])
STARTS = torch.tensor([0, 24])
KEYS = 30


def randomize(module):
    """Offsets and weights that depend on the query, unlike those a module starts with."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module.eval()


def test_temporal_attention_averages_the_two_maps_of_each_item():
    batch, height, width = 2, 3, 4
    length, points = height * width, 2
    attention = randomize(TemporalSelfAttention(C, HEADS, num_levels=1, num_points=points))
    query, pos = torch.randn(2, batch, length, C)
    value = torch.randn(2 * batch, length, C)
    reference = torch.rand(2 * batch, length, 1, 2)
    shapes = torch.tensor([[height, width]])

    result = attention(
        query,
        value,
        value,
        query_pos=pos,
        reference_points=reference,
        spatial_shapes=shapes,
        level_start_index=torch.tensor([0]),
    )

    joined = torch.cat([value[:batch], query + pos], -1)
    offsets = attention.sampling_offsets(joined).view(batch, length, HEADS, 2, 1, points, 2)
    weights = attention.attention_weights(joined).view(batch, length, HEADS, 2, points).softmax(-1)
    for item in range(batch):
        maps = []
        for entry in range(2):
            row = 2 * item + entry
            moved = offsets[item : item + 1, :, :, entry] / torch.tensor([width, height])
            maps.append(
                multi_scale_deformable_attn_pytorch(
                    attention.value_proj(value[row]).view(1, length, HEADS, -1),
                    shapes,
                    reference[row, :, None, :, None][None] + moved,
                    weights[item : item + 1, :, :, entry, None],
                )
            )
        expected = attention.output_proj((maps[0] + maps[1]) / 2)[0] + query[item]
        torch.testing.assert_close(result[item], expected, rtol=1e-4, atol=1e-5)


def test_temporal_attention_without_a_value_looks_at_the_query_twice():
    attention = randomize(TemporalSelfAttention(C, HEADS, num_levels=1))
    query = torch.randn(1, 12, C)
    arguments = {
        "reference_points": torch.rand(2, 12, 1, 2),
        "spatial_shapes": torch.tensor([[3, 4]]),
        "level_start_index": torch.tensor([0]),
    }
    twice = query.repeat(2, 1, 1)
    torch.testing.assert_close(
        attention(query, **arguments), attention(query, twice, twice, **arguments)
    )


def test_temporal_attention_refuses_another_queue_length():
    with pytest.raises(ValueError, match="num_bev_queue is 3"):
        TemporalSelfAttention(num_bev_queue=3)


def make_spatial_case(batch=2, cameras=3, length=7, heights=2):
    deformable = MSDeformableAttention3D(C, HEADS, num_levels=2, num_points=4)
    attention = randomize(SpatialCrossAttention(C, cameras, deformable_attention=deformable))
    mask = torch.rand(cameras, batch, length, heights) > 0.6
    mask[:, :, 0] = False  # a query that no camera sees
    mask[-1, 0] = False  # a camera that sees nothing
    return attention, {
        "query": torch.randn(batch, length, C),
        "value": torch.randn(cameras, KEYS, batch, C),
        "query_pos": torch.randn(batch, length, C),
        "reference_points_cam": torch.rand(cameras, batch, length, heights, 2),
        "bev_mask": mask,
        "spatial_shapes": LEVELS,
        "level_start_index": STARTS,
    }


def test_spatial_attention_averages_over_the_cameras_that_see_a_query():
    attention, case = make_spatial_case()
    result = attention(key=case["value"], **case)

    query, points = case["query"] + case["query_pos"], case["reference_points_cam"]
    seen = case["bev_mask"].any(-1)
    for item, position in torch.cartesian_prod(torch.arange(2), torch.arange(7)).tolist():
        total = torch.zeros(C)
        for camera in range(3):
            if seen[camera, 0, position]:  # the first item's list serves the whole batch
                total += attention.deformable_attention(
                    query[item, position][None, None],
                    value=case["value"][camera, :, item][None],
                    reference_points=points[camera, item, position][None, None],
                    spatial_shapes=LEVELS,
                    level_start_index=STARTS,
                )[0, 0]
        mean = total / max(1, int(seen[:, item, position].sum()))
        expected = attention.output_proj(mean) + case["query"][item, position]
        torch.testing.assert_close(result[item, position], expected, rtol=1e-4, atol=1e-5)


def test_spatial_attention_works_when_no_camera_sees_anything():
    attention, case = make_spatial_case()
    case["bev_mask"].zero_()
    result = attention(key=case["value"], **case)
    torch.testing.assert_close(result, case["query"] + attention.output_proj.bias)


def test_pillar_attention_spreads_its_points_over_the_heights():
    points, heights = 4, 2
    attention = randomize(MSDeformableAttention3D(C, HEADS, num_levels=2, num_points=points))
    query, value = torch.randn(2, 5, C), torch.randn(2, KEYS, C)
    reference = torch.rand(2, 5, heights, 2)

    result = attention(
        query,
        value=value,
        reference_points=reference,
        spatial_shapes=LEVELS,
        level_start_index=STARTS,
    )

    offsets = attention.sampling_offsets(query).view(2, 5, HEADS, 2, points, 2)
    weights = attention.attention_weights(query).view(2, 5, HEADS, -1).softmax(-1)
    nearest = reference[:, :, [point % heights for point in range(points)]]
    expected = multi_scale_deformable_attn_pytorch(
        attention.value_proj(value).view(2, KEYS, HEADS, -1),
        LEVELS,
        nearest[:, :, None, None] + offsets / LEVELS.flip(-1)[:, None],
        weights.view(2, 5, HEADS, 2, points),
    )
    torch.testing.assert_close(result, expected)


def test_pillar_attention_refuses_points_it_cannot_spread():
    attention = MSDeformableAttention3D(C, HEADS, num_levels=2, num_points=4)
    with pytest.raises(ValueError, match="num_points 4 is not a multiple of the 3"):
        attention(
            torch.randn(1, 5, C),
            value=torch.randn(1, KEYS, C),
            reference_points=torch.rand(1, 5, 3, 2),
            spatial_shapes=LEVELS,
        )


def test_decoder_attention_samples_around_each_object():
    length, height, width, points = 5, 3, 4, 2
    attention = randomize(CustomMSDeformableAttention(C, HEADS, num_levels=1, num_points=points))
    query, pos = torch.randn(2, length, 2, C)
    value = torch.randn(height * width, 2, C)
    reference = torch.rand(2, length, 1, 2)
    shapes = torch.tensor([[height, width]])

    result = attention(
        query, None, value, query_pos=pos, reference_points=reference, spatial_shapes=shapes
    )

    placed = (query + pos).transpose(0, 1)
    offsets = attention.sampling_offsets(placed).view(2, length, HEADS, 1, points, 2)
    weights = attention.attention_weights(placed).view(2, length, HEADS, 1, points).softmax(-1)
    sampled = multi_scale_deformable_attn_pytorch(
        attention.value_proj(value.transpose(0, 1)).view(2, height * width, HEADS, -1),
        shapes,
        reference[:, :, None, :, None] + offsets / torch.tensor([width, height]),
        weights,
    )
    expected = attention.output_proj(sampled).transpose(0, 1) + query
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize(
    "attention", [TemporalSelfAttention, MSDeformableAttention3D, CustomMSDeformableAttention]
)
def test_attentions_start_with_one_ray_per_head(attention):
    module = attention(32, num_heads=4, num_levels=2, num_points=3)
    offsets = module.sampling_offsets.bias.view(4, -1, 3, 2)
    side = 0.5**0.5
    directions = torch.tensor([[side, side], [-side, side], [-side, -side], [side, -side]])
    for point in range(3):
        expected = (point + 1) * directions[:, None].expand_as(offsets[:, :, point])
        torch.testing.assert_close(offsets[:, :, point], expected)
    assert not module.sampling_offsets.weight.any()
    assert not module.attention_weights.weight.any()


@pytest.mark.parametrize(
    "attention", [TemporalSelfAttention, MSDeformableAttention3D, CustomMSDeformableAttention]
)
def test_attentions_refuse_channels_that_the_heads_cannot_share(attention):
    with pytest.raises(ValueError, match="embed_dims 30 is not a multiple of num_heads 4"):
        attention(30, num_heads=4)
