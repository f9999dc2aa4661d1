"""Answers for `mmcv._ext`, mmcv's compiled operators, where they were not built.

Every name that mmcv asks for is there, so that all of mmcv can be imported. The operators that the
kernels of turbo_physai cover work; every other one raises when it is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

KERNELS: Final = "turbo_physai.kernels.faces.mmcv_ext"
COVERED: Final = (
    "ms_deform_attn_forward",
    "ms_deform_attn_backward",
    "modulated_deform_conv_forward",
    "modulated_deform_conv_backward",
)


def get_compiler_version() -> str:
    """What mmcv's report of the environment shows as its compiler."""
    return "none (turbo_physai stands in for mmcv._ext)"


def get_compiling_cuda_version() -> str:
    """What mmcv's report of the environment shows as its CUDA compiler."""
    return "none (turbo_physai stands in for mmcv._ext)"


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = _ours(name) if name in COVERED else _missing(name)
    return made


def _ours(name: str) -> Callable[..., Any]:
    # Imported by the first call: most programs import all of mmcv.ops and call little of it.
    def operator(*args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(KERNELS), name)(*args, **kwargs)

    operator.__name__ = operator.__qualname__ = name
    return operator


def _missing(name: str) -> Callable[..., NoReturn]:
    def operator(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"the operator {name} of mmcv is not compiled in this environment, and turbo_physai, "
            f"which stands in for mmcv._ext, covers {', '.join(COVERED)} only. Build mmcv with its "
            "operators for this PyTorch (pip install --no-build-isolation mmcv-full), or call "
            "something else."
        )

    operator.__name__ = operator.__qualname__ = name
    return operator
