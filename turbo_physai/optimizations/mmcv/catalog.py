"""The Groups for mmcv 1.x, declared. Nothing is imported here."""

from __future__ import annotations

from typing import Final

from turbo_physai.declarations import group, optional_import, replace, wrap
from turbo_physai.optimizations.mmcv.options import CheckpointOptions

HERE: Final = "turbo_physai.optimizations.mmcv"
DDP: Final = "mmcv.parallel.distributed.MMDistributedDataParallel"

# mmcv without compiled operators does not even import the Python parts that need none.
ext = group("mmcv.ext", optional_import("mmcv._ext", f"{HERE}.ext"), compatibility=True)

ddp = group(
    "mmcv.ddp",
    *(
        replace(f"{DDP}.{method}", f"{HERE}.ddp.{method}")
        for method in ("train_step", "val_step", "_run_ddp_forward")
    ),
    compatibility=True,
)

scatter = group(
    "mmcv.scatter",
    replace("mmcv.parallel._functions.Scatter.forward", f"{HERE}.scatter.forward"),
    compatibility=True,
)

load_checkpoint = group(
    "mmcv.load_checkpoint",
    wrap(
        "mmcv.runner.checkpoint.CheckpointLoader.load_checkpoint",
        f"{HERE}.checkpoint.with_numpy",
        verify=False,
    ),
    options=CheckpointOptions,
    compatibility=True,
)

GROUPS = (ext, scatter, ddp, load_checkpoint)
