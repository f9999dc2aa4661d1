"""How BEVFormer's batches are loaded."""

from __future__ import annotations

import multiprocessing
from functools import wraps
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch.utils.data._utils.pin_memory import pin_memory

from turbo_physai.optimizations.options import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def build_dataloader(
    original: Callable[..., Any], options: Mapping[str, Any]
) -> Callable[..., Any]:
    """The plugin's `build_dataloader`, with settings that it leaves no way to make.

    Args:
        original: the function.
        options: `start_method` of the worker processes ("fork", "spawn" or "forkserver"; Python's
            own choice by default); `prefetch_factor`, batches that each worker holds ready (torch's
            own choice by default); `pin_memory`, whether batches wait in memory that a GPU copies
            from while it computes (by default where there is a GPU).

    Raises:
        ValueError: an option that does not exist, or has another value.
    """
    _check(options)
    context = options.get("start_method")
    ahead = options.get("prefetch_factor")
    pinned = options.get("pin_memory")

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


def _check(options: Mapping[str, Any]) -> None:
    accepted = {
        "start_method": ("null", *multiprocessing.get_all_start_methods()),
        "prefetch_factor": ("null", "a whole number from 1 up"),
        "pin_memory": ("null", "true", "false"),
    }
    refuse_unknown(options, accepted)
    for key, value in options.items():
        right = {
            "start_method": value in accepted["start_method"][1:],
            "prefetch_factor": type(value) is int and value > 0,
            "pin_memory": isinstance(value, bool),
        }
        if value is not None and not right[key]:
            raise ValueError(
                f"option {key!r}: accepted are {', '.join(accepted[key])}, found {value!r}"
            )


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
