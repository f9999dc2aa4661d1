"""Which OptimizationConfig a process uses."""

from __future__ import annotations

import os
import stat
from importlib import import_module
from pathlib import Path
from typing import Final

from turbo_physai.config.installed import installed_configs, locate, normalized
from turbo_physai.errors import OptimizationConfigNotFoundError, did_you_mean
from turbo_physai.process import settings
from turbo_physai.process.command import is_path_safe
from turbo_physai.process.messages import warn
from turbo_physai.process.variables import is_name

DEFAULT: Final = Path("turbophysai_configs/default/optimization.yaml")
COMMON: Final = "common"


def select(
    path: str | os.PathLike[str] | None = None,
    model: str | None = None,
    *,
    from_folder: bool = True,
) -> Path:
    """The absolute path of the config to use.

    The first of: `path`; the config of `model`; what the variable TURBO_PHYSAI_OPTIMIZATION_CONFIG
    names; ``turbophysai_configs/default/optimization.yaml`` under the working directory; the
    packaged common config. A config that nobody has named is used with a warning.

    Args:
        from_folder: whether the working directory may hold the config; never if python was told to
            trust no folder (``-I``, ``-P``).

    Raises:
        OptimizationConfigNotFoundError: what was asked for is not there.
        TypeError: `path` or `model` is of another type.
    """
    if path is not None:
        return config_file(path, "optimization_config_path")
    if model is not None:
        return named(model)
    if stated := settings.OPTIMIZATION_CONFIG.text():
        return config_file(stated, settings.OPTIMIZATION_CONFIG.variable)
    if os.path.isfile(DEFAULT):  # noqa: PTH113 - False where the folder may not be entered
        absolute = DEFAULT.absolute()
        if from_folder and not is_path_safe():
            warn(f"using {absolute}, because no config was named and it lies in this folder")
            return absolute
        warn(f"not using {absolute}, because nobody named it; --optimization-config does")
    return packaged(COMMON)


def named(model: str) -> Path:
    """The config of a model: a packaged one, or one that an installed package ships under that
    name. Case does not matter and ``-`` equals ``_``.

    Raises:
        OptimizationConfigNotFoundError: there is none, or several packages ship one.
        TypeError: `model` is no text.
    """
    if not isinstance(model, str):
        raise TypeError(f"model is the name of a config, found {model!r}")
    name = normalized(model)
    ours = packaged_configs()
    if name in ours:  # these names are taken, so nothing else has to be looked for
        return ours[name]
    installed = installed_configs()
    found = [each for each in installed if each.name == name]
    if len(found) > 1:
        both = " and ".join(f"{each.origin} ({each.reference})" for each in found)
        raise OptimizationConfigNotFoundError(
            f"model: found {model!r} in {both}; accepted: a name that one installed package has. "
            f"--optimization-config package:file names one of them"
        )
    if not found:
        names = [*ours, *dict.fromkeys(each.name for each in installed)]
        shown = model if len(model) <= 100 else f"{model[:100]}..."
        raise OptimizationConfigNotFoundError(
            f"model: found {shown!r}; accepted: {', '.join(names)}{did_you_mean(name[:100], names)}"
        )
    return locate(found[0].reference, f"the entry point {name} of {found[0].origin}")


def packaged_configs() -> dict[str, Path]:
    """The configs that ship with turbo_physai, by the name of their model."""
    # Not importlib.resources, which takes long to import.
    folder = Path(import_module("turbo_physai.model_configs").__path__[0])
    files = (each / "optimization.yaml" for each in sorted(folder.iterdir()))
    return {file.parent.name: file for file in files if file.is_file()}


def packaged(model: str) -> Path:
    """The config that ships with turbo_physai for `model`."""
    return packaged_configs()[model]


def config_file(config: str | os.PathLike[str], source: str) -> Path:
    """The absolute path of the config that `source` has named: by its path, by the name of its
    model, or as ``package:file``.

    Raises:
        OptimizationConfigNotFoundError: it is not there.
        TypeError: it is no path.
    """
    if isinstance(config, str) and is_name(config):
        return locate(config, source) if ":" in config else named(config)
    return existing(config, source, "an OptimizationConfig")


def existing(path: str | os.PathLike[str], source: str, kind: str) -> Path:
    """The absolute form of `path`, which is that of a file.

    Raises:
        OptimizationConfigNotFoundError: it is not; the message says that `source` gave it, and that
            `kind` was expected.
        TypeError: it is no path.
    """
    found = Path(path)
    try:
        found = found.absolute()
        is_file = stat.S_ISREG(found.stat().st_mode)
        what = "a folder" if found.is_dir() else "a device or pipe"
    except (FileNotFoundError, NotADirectoryError):
        is_file, what = False, "no file"
    except (OSError, ValueError) as error:  # it may not be entered, is too long, ...
        is_file, what = False, f"nothing that can be read ({getattr(error, 'strerror', error)})"
    if not is_file:
        raise OptimizationConfigNotFoundError(
            f"{source}: found {what} at {found}; accepted: the path of {kind}"
        )
    return found
