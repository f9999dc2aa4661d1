"""Modules, classes and arguments are those of the official plugin, so its patches fit."""

import importlib
import inspect

import pytest

MODULES = "projects.mmdet3d_plugin.bevformer.modules."
ATTENTION = (
    "query key=None value=None identity=None query_pos=None key_padding_mask=None "
    "reference_points=None spatial_shapes=None level_start_index=None "
)
CONTRACTS = {
    MODULES + "temporal_self_attention:TemporalSelfAttention.forward": ATTENTION
    + "flag='decoder' **kwargs",
    MODULES + "decoder:CustomMSDeformableAttention.forward": ATTENTION + "flag='decoder' **kwargs",
    MODULES + "spatial_cross_attention:MSDeformableAttention3D.forward": ATTENTION + "**kwargs",
    MODULES + "spatial_cross_attention:SpatialCrossAttention.forward": (
        "query key value residual=None query_pos=None key_padding_mask=None reference_points=None "
        "spatial_shapes=None reference_points_cam=None bev_mask=None level_start_index=None "
        "flag='encoder' **kwargs"
    ),
    MODULES + "encoder:BEVFormerEncoder.point_sampling": "reference_points pc_range img_metas",
    MODULES + "encoder:BEVFormerEncoder.forward": (
        "bev_query key value *args bev_h=None bev_w=None bev_pos=None spatial_shapes=None "
        "level_start_index=None valid_ratios=None prev_bev=None shift=0.0 **kwargs"
    ),
    MODULES + "encoder:BEVFormerLayer.forward": (
        "query key=None value=None bev_pos=None query_pos=None key_pos=None attn_masks=None "
        "query_key_padding_mask=None key_padding_mask=None ref_2d=None ref_3d=None bev_h=None "
        "bev_w=None reference_points_cam=None mask=None spatial_shapes=None "
        "level_start_index=None prev_bev=None **kwargs"
    ),
    MODULES + "transformer:PerceptionTransformer.get_bev_features": (
        "mlvl_feats bev_queries bev_h bev_w grid_length=(0.512, 0.512) bev_pos=None "
        "prev_bev=None **kwargs"
    ),
    "projects.mmdet3d_plugin.models.utils.grid_mask:GridMask.forward": "x",
}


@pytest.mark.parametrize("target", CONTRACTS)
def test_a_method_takes_the_official_arguments(target):
    path, _, name = target.partition(":")
    class_name, method = name.split(".")
    owner = getattr(importlib.import_module(path), class_name)
    signature = inspect.signature(getattr(owner, method))
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in list(signature.parameters.values())[1:]
    ]
    assert " ".join(map(str, parameters)) == CONTRACTS[target]


@pytest.mark.parametrize("name", ["temporal_self_attention", "spatial_cross_attention", "decoder"])
def test_the_attentions_hold_the_function_from_their_import_on(name):
    function = importlib.import_module(MODULES + "multi_scale_deformable_attn_function")
    module = importlib.import_module(MODULES + name)
    assert (
        module.MultiScaleDeformableAttnFunction_fp32
        is function.MultiScaleDeformableAttnFunction_fp32
    )
