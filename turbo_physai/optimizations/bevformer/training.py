"""How a BEVFormer is trained: the optimizer's kernel, and the backbone's memory layout."""

from __future__ import annotations

import copy
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from torch import nn

    from turbo_physai.optimizations.bevformer.options import TrainingOptions

_FUSED: Final = ("AdamW", "Adam", "SGD", "Adagrad")


def build_optimizer(original: Callable[..., Any], options: TrainingOptions) -> Callable[..., Any]:
    """mmcv's `build_optimizer`, a function of (model, cfg), which asks torch's optimizer for its
    fused kernel: one launch for all parameters instead of some per operation.

    Checkpoints fit the original's both ways: one that was saved without the kernel is resumed with
    it, and it does not travel in one that is saved.
    """
    if not options.fused_optimizer:
        return original

    @wraps(original)
    def build(model: nn.Module, cfg: MutableMapping[str, Any]) -> Any:
        chosen = {"fused", "foreach"} & set(cfg)
        if cfg.get("type") not in _FUSED or chosen or not _can_fuse(model):
            return original(model, cfg)
        cfg = copy.copy(cfg)
        cfg["fused"] = True
        optimizer = original(model, cfg)
        # Before it is loaded: where the kernel wants the count of steps is decided then.
        optimizer.register_load_state_dict_pre_hook(lambda _, state: _with(state, fused=True))
        optimizer.register_state_dict_post_hook(lambda _, state: _with(state, fused=None))
        return optimizer

    return build


def _with(state: Mapping[str, Any], *, fused: bool | None) -> dict[str, Any]:
    """The state of an optimizer whose groups ask for the fused kernel, or leave that to torch."""
    return {**state, "param_groups": [{**group, "fused": fused} for group in state["param_groups"]]}


def initialize(original: Callable[..., None], options: TrainingOptions) -> Callable[..., None]:
    """`BEVFormer.__init__`, which then lays the image backbone and neck out as channels_last: the
    layout that tensor cores compute convolutions in, and that the attention reads. It pays where
    they work: on a GPU with 16-bit or TF32 convolutions."""
    if not options.channels_last:
        return original

    @wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for name in ("img_backbone", "img_neck"):
            module = getattr(self, name, None)
            if module is not None:
                module.to(memory_format=torch.channels_last)

    return __init__


def _can_fuse(model: nn.Module) -> bool:
    devices = {p.device.type for p in model.parameters() if p.requires_grad}
    return all(p.is_floating_point() for p in model.parameters()) and devices <= {"cpu", "cuda"}
