"""The Groups for BEVFormer and its relatives, given where a repository keeps the modules.

Relatives have copies of BEVFormer's modules in packages of their own, so each has Groups of its
own ids; what replaces them is the same. Nothing is imported here.
"""

from __future__ import annotations

from typing import Final

from turbo_physai.declarations import Group, Replacement, group, replace, wrap
from turbo_physai.optimizations.bevformer.options import SpatialCrossAttentionOptions
from turbo_physai.optimizations.options import CompileOptions

PLUGIN: Final = "projects.mmdet3d_plugin"
OURS: Final = "turbo_physai.optimizations.bevformer"
FACES: Final = "turbo_physai.kernels.faces.mmcv"
BACKENDS: Final = "turbo_physai.optimizations.backends"
COMPILED: Final = "turbo_physai.optimizations.compiled:compiled"


def deformable_attention(model: str, modules: str) -> Group:
    """`<model>.msda`: the two autograd Functions that all attention modules end in."""
    functions = ("MultiScaleDeformableAttnFunction_fp32", "MultiScaleDeformableAttnFunction_fp16")
    return group(
        f"{model}.msda", *(each for name in functions for each in _function(modules, name))
    )


def _function(modules: str, name: str) -> tuple[Replacement, ...]:
    # The two methods, not the class: three modules hold the class by the time it could be changed,
    # and a forward must never meet the other one's saved tensors.
    target = f"{modules}.multi_scale_deformable_attn_function.{name}"
    return tuple(
        replace(
            f"{target}.{method}",
            f"{FACES}:{name}.{method}",
            runtime_condition=f"{OURS}.msda:supports_{method}",
            backend=f"{BACKENDS}:ms_deform_attn",
        )
        for method in ("forward", "backward")
    )


def spatial_cross_attention(model: str, modules: str) -> Group:
    """`<model>.sca`."""
    return group(
        f"{model}.sca",
        wrap(
            f"{modules}.spatial_cross_attention.SpatialCrossAttention.forward",
            f"{OURS}.attention:spatial_cross_attention_forward",
            runtime_condition=f"{OURS}.attention:supports_spatial_cross_attention",
            backend=f"{BACKENDS}:spatial_cross_attention",
        ),
        options=SpatialCrossAttentionOptions,
    )


def temporal_self_attention(model: str, modules: str) -> Group:
    """`<model>.tsa`."""
    return group(
        f"{model}.tsa",
        replace(
            f"{modules}.temporal_self_attention.TemporalSelfAttention.forward",
            f"{OURS}.attention:temporal_self_attention_forward",
            runtime_condition=f"{OURS}.attention:supports_deformable_attention",
            backend=f"{BACKENDS}:temporal_self_attention",
        ),
    )


def decoder_attention(model: str, modules: str) -> Group:
    """`<model>.decoder_attention`."""
    return group(
        f"{model}.decoder_attention",
        replace(
            f"{modules}.decoder.CustomMSDeformableAttention.forward",
            f"{OURS}.attention:decoder_attention_forward",
            runtime_condition=f"{OURS}.attention:supports_deformable_attention",
            backend=f"{BACKENDS}:temporal_self_attention",
        ),
    )


def point_sampling(model: str, modules: str) -> Group:
    """`<model>.point_sampling`."""
    return group(
        f"{model}.point_sampling",
        replace(
            f"{modules}.encoder.BEVFormerEncoder.point_sampling",
            f"{OURS}.encoder:point_sampling",
            backend=f"{BACKENDS}:point_sampling",
        ),
    )


def grid_mask(model: str) -> Group:
    """`<model>.grid_mask`."""
    return group(
        f"{model}.grid_mask",
        replace(
            f"{PLUGIN}.models.utils.grid_mask.GridMask.forward",
            f"{OURS}.grid_mask:grid_mask_forward",
        ),
    )


def linear(model: str, modules: str) -> Group:
    """`<model>.linear`: the layers of encoder and decoder, on CPUs where another library pays."""
    return group(
        f"{model}.linear",
        wrap(f"{modules}.transformer.PerceptionTransformer.__init__", f"{OURS}.linear:initialize"),
    )


def compiled_encoder(model: str, modules: str) -> Group:
    """`<model>.compile.encoder`. Each layer is a graph; the fused attention must be there first,
    since the published one breaks graphs."""
    return group(
        f"{model}.compile.encoder",
        wrap(f"{modules}.encoder.BEVFormerLayer.forward", COMPILED),
        depends_on=(f"{model}.sca", f"{model}.tsa"),
        options=CompileOptions,
    )


def compiled_decoder(model: str, modules: str) -> Group:
    """`<model>.compile.decoder`."""
    return group(
        f"{model}.compile.decoder",
        wrap(f"{modules}.decoder.DetectionTransformerDecoder.forward", COMPILED),
        depends_on=(f"{model}.decoder_attention",),
        options=CompileOptions,
    )


def attention_groups(model: str, modules: str) -> tuple[Group, ...]:
    """The Groups that every repository with BEVFormer's modules can have."""
    return (
        deformable_attention(model, modules),
        spatial_cross_attention(model, modules),
        temporal_self_attention(model, modules),
        decoder_attention(model, modules),
        point_sampling(model, modules),
        grid_mask(model),
        compiled_encoder(model, modules),
        compiled_decoder(model, modules),
    )
