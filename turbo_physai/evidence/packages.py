"""Installed distributions, told from their metadata: nothing is imported.

`importlib.metadata` takes longer to import than all that is looked up at the start of a process.
So the name of a ``.dist-info`` folder, which holds the version, is enough wherever it leaves no
doubt.
"""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from typing import Final

_FOLDERS: Final = (".dist-info", ".egg-info")
# Other versions may be spelled otherwise in the name of the folder than in the metadata inside.
_PLAIN: Final = re.compile(r"(\d+(?:\.\d+)*(?:\+[a-z0-9.]+)?)\.dist-info")


def version(distribution: str) -> str | None:
    """The installed version of a distribution; None if it is not installed."""
    wanted = _normalized(distribution)
    if any(map(_finds_distributions, sys.meta_path)):
        return _from_metadata(distribution)
    for path in sys.path:
        known = _distributions_at(path)
        if known is None:
            return _from_metadata(distribution)
        if wanted in known:
            plain = _PLAIN.fullmatch(known[wanted].partition("-")[2])
            metadata = os.path.join(path, known[wanted], "METADATA")  # noqa: PTH118
            is_certain = plain is not None and os.path.isfile(metadata)  # noqa: PTH113
            return plain[1] if plain and is_certain else _from_metadata(distribution)
    return None


def _distributions_at(path: str) -> dict[str, str] | None:
    """The metadata folders in an entry of `sys.path`, by normalized name; None where it is no
    folder that can simply be listed."""
    try:
        return _listed(path, os.stat(path or ".").st_mtime_ns)  # noqa: PTH116
    except FileNotFoundError:
        return {}
    except (OSError, TypeError, ValueError):  # an archive, for one
        return None


@lru_cache
def _listed(folder: str, mtime: int) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for name in os.listdir(folder or "."):  # noqa: PTH208
        if name.lower().endswith(_FOLDERS):
            # Of two versions of one distribution it takes more to tell which one counts.
            distribution = _normalized(name.rpartition(".")[0].partition("-")[0])
            found[distribution] = "" if distribution in found else name
    return None if folder.lower().rstrip("/").endswith(".egg") else found


def _normalized(distribution: str) -> str:
    return re.sub(r"[-_.]+", "_", distribution).lower()


def _finds_distributions(finder: object) -> bool:
    """Whether a finder knows distributions of its own, besides those that lie on `sys.path`."""
    is_ours = getattr(finder, "__module__", "") == "_frozen_importlib_external"
    return not is_ours and hasattr(finder, "find_distributions")


def _from_metadata(distribution: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
