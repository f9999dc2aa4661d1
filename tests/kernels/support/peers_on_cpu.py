"""A pytest plugin for other libraries' tests: the faces in their places, and without a GPU the CPU
in the place of "cuda".

`TURBO_PHYSAI_PEER` names the library; `pytest -p peers_on_cpu` loads this before its tests.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

import torch
from turbo_physai.kernels.faces import mmcv as mmcv_face
from turbo_physai.kernels.faces import mmcv_ext, multi_scale_deformable_attention
from turbo_physai.kernels.faces import torchvision as torchvision_face


class StandIn(ModuleType):
    """mmcv's compiled module: the functions that there are, and the names of the others."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(mmcv_ext, name, None) or missing


def missing(*_: object, **__: object) -> None:
    raise NotImplementedError


def on_cpu(device: object) -> object:
    """The CPU, where "cuda" is asked for."""
    is_cuda = isinstance(device, (str, torch.device)) and torch.device(device).type == "cuda"
    return torch.device("cpu") if is_cuda else device


def without_gpu() -> None:
    """Let `.cuda()` and "cuda" mean the CPU."""
    for owner in (torch.Tensor, torch.nn.Module):
        to = owner.to

        def moved(self, *args, _to=to, **kwargs):
            return _to(self, *map(on_cpu, args), **{k: on_cpu(v) for k, v in kwargs.items()})

        owner.to = moved
        owner.cuda = lambda self, *args, **kwargs: self
    for name in ("tensor", "rand", "randn", "zeros", "ones", "empty"):
        make = getattr(torch, name)
        setattr(
            torch, name, lambda *a, _m=make, **k: _m(*a, **{n: on_cpu(v) for n, v in k.items()})
        )


def install() -> None:
    peer = os.environ["TURBO_PHYSAI_PEER"]
    if peer == "deformable-detr":
        sys.modules["MultiScaleDeformableAttention"] = multi_scale_deformable_attention
    elif peer == "mmcv":
        sys.modules["mmcv._ext"] = StandIn("mmcv._ext")
        import mmcv.utils

        mmcv.utils.IS_CUDA_AVAILABLE = True
        import mmcv.ops.modulated_deform_conv as conv
        import mmcv.ops.multi_scale_deform_attn as attention

        attention.IS_CUDA_AVAILABLE = True
        for name in ("MultiScaleDeformableAttnFunction", "multi_scale_deformable_attn_pytorch"):
            setattr(attention, name, getattr(mmcv_face, name))
        conv.modulated_deform_conv2d = mmcv_face.modulated_deform_conv2d
        conv.ModulatedDeformConv2dFunction = mmcv_face.ModulatedDeformConv2dFunction
    elif peer == "torchvision":
        from torchvision import ops

        ops.deform_conv2d = ops.deform_conv.deform_conv2d = torchvision_face.deform_conv2d
    if not torch.cuda.is_available():
        without_gpu()  # after the libraries have scripted what they script


install()
