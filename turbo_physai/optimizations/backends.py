"""Which backend of the kernels serves a replacement in this process, for the report."""

from __future__ import annotations

from collections.abc import Callable

import torch

from turbo_physai.evidence import BackendResult
from turbo_physai.kernels import backends


def _of(op: str) -> Callable[[], BackendResult]:
    def backend() -> BackendResult:
        """The fused backend of the device that the model will be on, else PyTorch's operators."""
        wanted = "triton" if torch.cuda.is_available() else "cpu"
        for found in backends():
            if found.op == op and found.name == wanted:
                if found.missing is None:
                    return BackendResult(wanted)
                return BackendResult("torch", fused=False, reason=found.missing)
        return BackendResult("torch", fused=False, reason=f"{op} has no {wanted} backend")

    return backend


modulated_deform_conv2d = _of("modulated_deform_conv2d")
ms_deform_attn = _of("ms_deform_attn")
point_sampling = _of("point_sampling")
spatial_cross_attention = _of("spatial_cross_attention")
temporal_self_attention = _of("temporal_self_attention")
