"""The peak memory of this process, and of its GPU."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any


def peak_bytes() -> dict[str, int | None]:
    """``process``: the most that was resident at once; ``cuda``: the most that tensors held on the
    current GPU, and ``cuda_reserved`` with what torch keeps for later; None where there is none."""
    peak: dict[str, int | None] = {"process": _process(), "cuda": None, "cuda_reserved": None}
    import torch

    cuda: Any = torch.cuda
    if cuda.is_available() and cuda.is_initialized():
        peak["cuda"] = cuda.max_memory_allocated()
        peak["cuda_reserved"] = cuda.max_memory_reserved()
    return peak


def _process() -> int | None:
    # Not `resource`, whose maximum includes that of the program which has started this one.
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None
