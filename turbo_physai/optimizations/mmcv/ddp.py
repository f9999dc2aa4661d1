"""`MMDistributedDataParallel` on PyTorch 2: the stock forward of DDP, around `train_step`.

mmcv 1.x repeats in its own `train_step` what DDP's forward did in PyTorch 1.x, down to attributes
that have gone since (open-mmlab/mmcv#636, fundamentalvision/BEVFormer#321). Here DDP's own forward
does its work, whatever that is in the PyTorch installed, and only what it calls is chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmcv.parallel.scatter_gather import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    scatter_kwargs,
)

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

# The attribute of the wrapper that names the method to be run, while it is not `forward`.
_STEP = "_turbo_physai_step"


def train_step(self: DistributedDataParallel, *inputs: Any, **kwargs: Any) -> Any:
    """The wrapped module's `train_step`, with everything that DDP does around a forward."""
    return _forward(self, "train_step", inputs, kwargs)


def val_step(self: DistributedDataParallel, *inputs: Any, **kwargs: Any) -> Any:
    """The wrapped module's `val_step`, with everything that DDP does around a forward."""
    return _forward(self, "val_step", inputs, kwargs)


def _forward(
    self: DistributedDataParallel, step: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    setattr(self, _STEP, step)
    try:
        return self.forward(*inputs, **kwargs)  # type: ignore[no-untyped-call]
    finally:
        delattr(self, _STEP)


def _run_ddp_forward(self: DistributedDataParallel, *inputs: Any, **kwargs: Any) -> Any:
    """Runs a method of the wrapped module on what the DataContainers in the arguments hold, moved
    to the module's device."""
    device = self.device_ids[0] if self.device_ids else -1  # -1 is mmcv's word for the CPU
    moved, named = scatter_kwargs(inputs, kwargs, [device], dim=self.dim)
    with self._inside_ddp_forward():
        step = getattr(self, _STEP, None)
        run = self.module if step is None else getattr(self.module, step)
        return run(*moved[0], **named[0])
