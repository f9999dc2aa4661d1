"""Loads checkpoints that hold more than weights with a PyTorch that loads weights alone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from turbo_physai.optimizations.mmcv.options import CheckpointOptions


def with_numpy(load: Callable[..., Any], options: CheckpointOptions) -> Callable[..., Any]:
    """`CheckpointLoader.load_checkpoint`, for checkpoints whose meta data holds numpy's numbers and
    arrays, which mmcv 1.x likes to put there.

    They are data: loading them runs no code of the checkpoint's. With the option ``trusted: true``
    anything is loaded (``weights_only=False``), and a checkpoint may run any code it likes: for
    files of known origin only.
    """
    allow = _anything if options.trusted else _numbers_and_arrays

    def load_checkpoint(cls: type, *args: Any, **kwargs: Any) -> Any:
        with allow():
            return load(cls, *args, **kwargs)

    return load_checkpoint


def _numbers_and_arrays() -> contextlib.AbstractContextManager[None]:
    makers: list[Any] = [np.float64().__reduce__()[0], np.empty(0).__reduce__()[0]]
    # A checkpoint calls them by the name that they had in the numpy that wrote it.
    named = [
        (maker, f"numpy.{part}.multiarray.{maker.__name__}")
        for part in ("core", "_core")
        for maker in makers
    ]
    # Not of Python objects, bare or in records: those could be anything.
    kinds = [type(np.dtype(code)) for code in np.typecodes["All"] if code not in "OV"]
    return torch.serialization.safe_globals([*named, np.ndarray, np.dtype, *kinds])


@contextlib.contextmanager
def _anything() -> Iterator[None]:
    # PyTorch's own switch for callers that do not say weights_only themselves.
    with mock.patch.dict("os.environ", TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="1"):
        yield
