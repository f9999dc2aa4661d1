"""The Groups for BEVFormer, declared. Nothing is imported here."""

from __future__ import annotations

from typing import Final

from turbo_physai.declarations import Replacement, group, replace

MODULES: Final = "projects.mmdet3d_plugin.bevformer.modules"
FACES: Final = "turbo_physai.kernels.faces.mmcv"


def _function(name: str) -> tuple[Replacement, Replacement]:
    # The two methods, not the class: three modules hold the class by the time it could be changed,
    # and a forward must never meet the other one's saved tensors.
    target = f"{MODULES}.multi_scale_deformable_attn_function.{name}"
    return tuple(  # type: ignore[return-value]
        replace(f"{target}.{method}", f"{FACES}:{name}.{method}")
        for method in ("forward", "backward")
    )


msda = group(
    "bevformer.msda",
    *_function("MultiScaleDeformableAttnFunction_fp32"),
    *_function("MultiScaleDeformableAttnFunction_fp16"),
)

GROUPS = (msda,)
