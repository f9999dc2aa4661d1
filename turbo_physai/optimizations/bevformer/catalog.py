"""The Groups for BEVFormer, declared. Nothing is imported here."""

from __future__ import annotations

from typing import Final

from turbo_physai.declarations import group, replace, wrap
from turbo_physai.optimizations.bevformer.groups import (
    BACKENDS,
    FACES,
    OURS,
    PLUGIN,
    attention_groups,
    linear,
)
from turbo_physai.optimizations.bevformer.options import DataOptions, TrainingOptions

MODULES: Final = f"{PLUGIN}.bevformer.modules"

# What the attention modules call on a CPU, where mmcv has no compiled operators.
msda_pytorch = group(
    "bevformer.msda_pytorch",
    replace(
        "mmcv.ops.multi_scale_deform_attn.multi_scale_deformable_attn_pytorch",
        f"{FACES}:multi_scale_deformable_attn_pytorch",
        runtime_condition=f"{OURS}.msda:supports_heads",
        backend=f"{BACKENDS}:ms_deform_attn",
    ),
)

# The methods of the Function: the function `modulated_deform_conv2d` is its bound `apply`.
dcn = group(
    "bevformer.dcn",
    *(
        replace(
            f"mmcv.ops.modulated_deform_conv.ModulatedDeformConv2dFunction.{method}",
            f"{FACES}:ModulatedDeformConv2dFunction.{method}",
            backend=f"{BACKENDS}:modulated_deform_conv2d",
        )
        for method in ("forward", "backward")
    ),
)

training = group(
    "bevformer.training",
    wrap(
        "mmcv.runner.optimizer.builder.build_optimizer",
        f"{OURS}.training:build_optimizer",
        verify=False,
    ),
    wrap(
        f"{PLUGIN}.bevformer.detectors.bevformer.BEVFormer.__init__", f"{OURS}.training:initialize"
    ),
    options=TrainingOptions,
)

data = group(
    "bevformer.data",
    wrap(
        f"{PLUGIN}.datasets.builder.build_dataloader", f"{OURS}.data:build_dataloader", verify=False
    ),
    options=DataOptions,
)

GROUPS = (
    *attention_groups("bevformer", MODULES),
    linear("bevformer", MODULES),
    msda_pytorch,
    dcn,
    training,
    data,
)
