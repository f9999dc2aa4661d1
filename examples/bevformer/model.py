"""Sizes of the model, and the model built to them."""

from __future__ import annotations

from dataclasses import dataclass

from projects.mmdet3d_plugin.bevformer.dense_heads.bevformer_head import BEVFormerHead
from projects.mmdet3d_plugin.bevformer.detectors.bevformer import BEVFormer
from projects.mmdet3d_plugin.bevformer.modules.decoder import (
    CustomMSDeformableAttention,
    DetectionTransformerDecoder,
    DetrTransformerDecoderLayer,
)
from projects.mmdet3d_plugin.bevformer.modules.encoder import BEVFormerEncoder, BEVFormerLayer
from projects.mmdet3d_plugin.bevformer.modules.spatial_cross_attention import (
    MSDeformableAttention3D,
    SpatialCrossAttention,
)
from projects.mmdet3d_plugin.bevformer.modules.temporal_self_attention import TemporalSelfAttention
from projects.mmdet3d_plugin.bevformer.modules.transformer import PerceptionTransformer
from projects.mmdet3d_plugin.bevformer.modules.transformer_layer import MultiheadAttention
from projects.mmdet3d_plugin.datasets.frame import CLASSES, PC_RANGE
from projects.mmdet3d_plugin.models.backbones.resnet import ResNet
from projects.mmdet3d_plugin.models.necks.fpn import FPN

STAGE_CHANNELS = (32, 64, 128, 256)
STAGES = {1: (2,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 3)}  # backbone stages by feature levels


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the model; the defaults train on two CPU cores.

    Attributes:
        bev: rows and columns of the BEV map.
        levels: camera feature levels, 1 to 4: stride 16, 8-16, 8-32, or 8-64.
        embed_dims: channels, a multiple of `heads` and of 2.
        heads: attention heads.
        encoder_layers, decoder_layers: layers.
        queries: object queries.
        cameras: cameras of a frame.
        dropout: probability in every layer.
    """

    bev: int = 40
    levels: int = 1
    embed_dims: int = 128
    heads: int = 8
    encoder_layers: int = 3
    decoder_layers: int = 2
    queries: int = 150
    cameras: int = 6
    dropout: float = 0.1


def _encoder_layer(config: ModelConfig) -> BEVFormerLayer:
    dims, heads = config.embed_dims, config.heads
    temporal = TemporalSelfAttention(dims, heads, num_levels=1, dropout=config.dropout)
    deformable = MSDeformableAttention3D(dims, heads, config.levels, num_points=8)
    spatial = SpatialCrossAttention(
        dims, config.cameras, dropout=config.dropout, deformable_attention=deformable
    )
    return BEVFormerLayer(temporal, spatial, dims, 2 * dims, config.dropout)


def _decoder_layer(config: ModelConfig) -> DetrTransformerDecoderLayer:
    dims, heads = config.embed_dims, config.heads
    among = MultiheadAttention(dims, heads, config.dropout)
    into_bev = CustomMSDeformableAttention(dims, heads, num_levels=1, dropout=config.dropout)
    return DetrTransformerDecoderLayer(among, into_bev, dims, 2 * dims, config.dropout)


def build_model(config: ModelConfig) -> BEVFormer:
    """Build the detector with random weights."""
    stages = STAGES[config.levels]
    encoder = [_encoder_layer(config) for _ in range(config.encoder_layers)]
    decoder = [_decoder_layer(config) for _ in range(config.decoder_layers)]
    transformer = PerceptionTransformer(
        BEVFormerEncoder(encoder, PC_RANGE),
        DetectionTransformerDecoder(decoder),
        embed_dims=config.embed_dims,
        num_feature_levels=config.levels,
        num_cams=config.cameras,
        rotate_center=(config.bev / 2, config.bev / 2),
    )
    head = BEVFormerHead(
        transformer, config.bev, config.bev, len(CLASSES), config.queries, PC_RANGE
    )
    neck = FPN([STAGE_CHANNELS[stage] for stage in stages], config.embed_dims, config.levels)
    return BEVFormer(ResNet(STAGE_CHANNELS, stages), neck, head)
