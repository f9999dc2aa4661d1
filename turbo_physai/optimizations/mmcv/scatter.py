"""Sends batches to GPUs without the streams of PyTorch 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmcv.parallel._functions import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    scatter,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def forward(target_gpus: Sequence[int], input: Any) -> tuple[Any, ...]:
    """`Scatter.forward` of mmcv: tensors, or lists of them, on the GPUs of these numbers; -1 is the
    CPU.

    mmcv copies in streams that a private function of PyTorch hands out, which from PyTorch 2.1 on
    does not take numbers ('int' object has no attribute 'type'). It waits for them at once, so that
    nothing is gained by them: here the copies are in the current stream.
    """
    outputs = scatter(input, list(target_gpus))
    return tuple(outputs) if isinstance(outputs, list) else (outputs,)
