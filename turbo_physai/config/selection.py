"""Which OptimizationConfig a process uses."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Final

from turbo_physai.errors import OptimizationConfigNotFoundError

CONFIG_VARIABLE: Final = "TURBO_PHYSAI_OPTIMIZATION_CONFIG"
DEFAULT: Final = Path("turbophysai_configs/default/optimization.yaml")
COMMON: Final = "common"


def select(path: str | os.PathLike[str] | None = None, model: str | None = None) -> Path:
    """The absolute path of the config to use.

    The first of: `path`; the packaged config of `model`; the file that the variable
    TURBO_PHYSAI_OPTIMIZATION_CONFIG names; ``turbophysai_configs/default/optimization.yaml`` under
    the working directory; the packaged common config.

    Raises:
        OptimizationConfigNotFoundError: what was asked for is not there.
        TypeError: `path` or `model` is of another type.
    """
    if path is not None:
        return _existing(Path(path), "optimization_config_path")
    if model is not None:
        return packaged(model)
    if from_environment := os.environ.get(CONFIG_VARIABLE):
        return _existing(Path(from_environment), CONFIG_VARIABLE)
    if DEFAULT.is_file():
        return DEFAULT.absolute()
    return packaged(COMMON)


def packaged(model: str) -> Path:
    """The packaged config of `model`; case does not matter and ``-`` equals ``_``."""
    if not isinstance(model, str):
        raise TypeError(f"model is the name of a packaged config, found {model!r}")
    configs = packaged_configs()
    name = model.lower().replace("-", "_")
    if name not in configs:
        raise OptimizationConfigNotFoundError(
            f"model: found {model!r}; accepted: {', '.join(configs)}"
        )
    return configs[name]


def packaged_configs() -> dict[str, Path]:
    """The configs that ship with turbo_physai, by the name of their model."""
    folder = Path(str(files("turbo_physai.model_configs")))
    return {file.parent.name: file for file in sorted(folder.glob("*/optimization.yaml"))}


def _existing(path: Path, source: str) -> Path:
    path = path.absolute()
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no file"
        raise OptimizationConfigNotFoundError(
            f"{source}: found {what} at {path}; accepted: the path of an OptimizationConfig"
        )
    return path
