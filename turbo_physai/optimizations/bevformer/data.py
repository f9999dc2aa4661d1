"""How BEVFormer's batches are loaded."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch.utils.data._utils.pin_memory import pin_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from turbo_physai.optimizations.bevformer.options import DataOptions


def build_dataloader(original: Callable[..., Any], options: DataOptions) -> Callable[..., Any]:
    """The plugin's `build_dataloader`, with settings that it leaves no way to make. What the
    caller states goes before the options."""
    context, ahead, pinned = options.start_method, options.prefetch_factor, options.pin_memory

    @wraps(original)
    def build(
        dataset: Any, samples_per_gpu: int, workers_per_gpu: int, *args: Any, **kwargs: Any
    ) -> Any:
        if workers_per_gpu > 0:
            if context is not None:
                kwargs.setdefault("multiprocessing_context", context)
            if ahead is not None:
                kwargs.setdefault("prefetch_factor", ahead)
        loader = original(dataset, samples_per_gpu, workers_per_gpu, *args, **kwargs)
        if torch.cuda.is_available() if pinned is None else pinned:
            loader.pin_memory = True
            loader.collate_fn = Pinnable(loader.collate_fn)
        return loader

    return build


@attrs.frozen
class Pinnable:
    """A collate function whose batches can be pinned: torch does not see into mmcv's containers."""

    collate: Callable[..., Any]

    def __call__(self, samples: Any) -> Any:
        batch = self.collate(samples)
        return PinnableBatch(batch) if type(batch) is dict else batch


class PinnableBatch(dict[str, Any]):
    """A batch as a dict of mmcv's DataContainers, tensors and collections of these."""

    def pin_memory(self) -> dict[str, Any]:
        return {key: _pinned(value) for key, value in self.items()}


def _pinned(value: Any) -> Any:
    if type(value).__name__ == "DataContainer" and not value.cpu_only:
        value._data = pin_memory(value._data)  # type: ignore[no-untyped-call]
        return value
    return pin_memory(value)  # type: ignore[no-untyped-call]
