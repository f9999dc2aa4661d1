"""How a BEVFormer is trained: the optimizer's kernel, and the backbone's memory layout."""

from __future__ import annotations

import copy
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import torch

from turbo_physai.optimizations.options import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from torch import nn

_OPTIONS: Final = ("fused_optimizer", "channels_last")
_FUSED: Final = ("AdamW", "Adam", "SGD", "Adagrad")


def build_optimizer(original: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    """mmcv's `build_optimizer`, which asks torch's optimizer for its fused kernel: one launch for
    all parameters instead of some per operation.

    Args:
        original: mmcv's function of (model, cfg).
        options: `fused_optimizer`, true by default.

    Raises:
        ValueError: an option that does not exist, or is no boolean.
    """
    if not _option(options, "fused_optimizer", default=True):
        return original

    @wraps(original)
    def build(model: nn.Module, cfg: MutableMapping[str, Any]) -> Any:
        chosen = {"fused", "foreach"} & set(cfg)
        if cfg.get("type") in _FUSED and not chosen and _can_fuse(model):
            cfg = copy.copy(cfg)
            cfg["fused"] = True
        return original(model, cfg)

    return build


def initialize(original: Callable[..., None], options: Mapping[str, Any]) -> Callable[..., None]:
    """`BEVFormer.__init__`, which then lays the image backbone and neck out as channels_last: the
    layout that tensor cores compute convolutions in, and that the attention reads.

    Args:
        original: the method.
        options: `channels_last`, false by default: it pays where tensor cores work, on a GPU with
            16-bit or TF32 convolutions.

    Raises:
        ValueError: an option that does not exist, or is no boolean.
    """
    if not _option(options, "channels_last", default=False):
        return original

    @wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for name in ("img_backbone", "img_neck"):
            module = getattr(self, name, None)
            if module is not None:
                module.to(memory_format=torch.channels_last)

    return __init__


def _option(options: Mapping[str, Any], name: str, *, default: bool) -> bool:
    refuse_unknown(options, _OPTIONS)
    for key, value in options.items():
        if not isinstance(value, bool):
            raise ValueError(f"option {key!r}: accepted are true and false, found {value!r}")
    return bool(options.get(name, default))


def _can_fuse(model: nn.Module) -> bool:
    devices = {p.device.type for p in model.parameters() if p.requires_grad}
    return all(p.is_floating_point() for p in model.parameters()) and devices <= {"cpu", "cuda"}
