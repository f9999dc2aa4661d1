"""Sends batches to GPUs with a PyTorch that wants to be given devices, not their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def to_devices(forward: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    """`Scatter.forward`, whose numbers of GPUs PyTorch 2.1 and later no longer has streams for
    ('int' object has no attribute 'type'). -1, mmcv's word for the CPU, stays what it is."""

    def to_given_devices(target_gpus: Sequence[Any], input: Any) -> Any:
        devices = [_device(gpu) for gpu in target_gpus]
        return forward(devices, input)

    return to_given_devices


def _device(gpu: Any) -> Any:
    return torch.device("cuda", gpu) if isinstance(gpu, int) and gpu >= 0 else gpu
