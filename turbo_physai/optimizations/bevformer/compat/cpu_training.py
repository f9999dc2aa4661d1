"""Trains where there is no GPU: the model stays where it is."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from turbo_physai.declarations import NoOptions


def where_there_is_no_gpu(train: Callable[..., Any], options: NoOptions) -> Callable[..., Any]:
    """`custom_train_detector`, which moves the model to the GPU before anything else."""
    signature = inspect.signature(train)

    def custom_train_detector(model: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not torch.cuda.is_available():
            given = signature.bind(model, *args, **kwargs).arguments
            for module in (model, given.get("eval_model")):
                if module is not None:
                    _ignore_the_next_move(module)
        return train(model, *args, **kwargs)

    return custom_train_detector


def _ignore_the_next_move(module: torch.nn.Module) -> None:
    def cuda(device: Any = None) -> torch.nn.Module:
        del module.cuda  # what the module's class says holds again
        return module

    module.cuda = cuda  # type: ignore[method-assign]
