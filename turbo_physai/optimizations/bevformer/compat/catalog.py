"""The Groups that BEVFormer needs to run on a current stack, declared. Nothing is imported here."""

from __future__ import annotations

from typing import Final

from turbo_physai.declarations import group, optional_import, wrap

HERE: Final = "turbo_physai.optimizations.bevformer.compat"
PLUGIN: Final = "projects.mmdet3d_plugin"

# The modules that importing the plugin imports; only BEVFormerV2's second head calls them.
DETECTRON2: Final = (
    "detectron2",
    "detectron2.data",
    "detectron2.layers",
    "detectron2.modeling",
    "detectron2.modeling.postprocessing",
    "detectron2.structures",
    "detectron2.structures.boxes",
    "detectron2.utils",
    "detectron2.utils.comm",
    "detectron2.utils.env",
)

detectron2 = group(
    "bevformer.compat.detectron2",
    *(optional_import(module, f"{HERE}.detectron2") for module in DETECTRON2),
    compatibility=True,
)

cpu_training = group(
    "bevformer.compat.cpu_training",
    wrap(
        f"{PLUGIN}.bevformer.apis.mmdet_train.custom_train_detector",
        f"{HERE}.cpu_training.where_there_is_no_gpu",
    ),
    compatibility=True,
)

GROUPS = (detectron2, cpu_training)
