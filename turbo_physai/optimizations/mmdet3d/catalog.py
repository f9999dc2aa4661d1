"""The Groups for mmdet3d 1.x, declared. Nothing is imported here."""

from __future__ import annotations

from typing import Final

from turbo_physai.declarations import during_import, group

HERE: Final = "turbo_physai.optimizations.mmdet3d"

mmcv_version = group(
    "mmdet3d.mmcv_version",
    during_import("mmdet3d", "mmcv.__version__", f"{HERE}.version.accepted"),
    compatibility=True,
)

GROUPS = (mmcv_version,)
