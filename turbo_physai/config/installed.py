"""Configs that installed packages ship, by name.

A package names them in entry points of the group ``turbo_physai.configs``, here in its
pyproject.toml, and nothing of it is imported to find the file::

    [project.entry-points."turbo_physai.configs"]
    sparse4d = "my_package.sparse4d"               # optimization.yaml in that package's folder
    sparse4d_eval = "my_package.sparse4d:eval.yaml"
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from turbo_physai.errors import OptimizationConfigNotFoundError

ENTRY_POINTS: Final = "turbo_physai.configs"
FILE: Final = "optimization.yaml"

_REFERENCE: Final = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*)\s*(?::\s*([^:]+))?")


class InstalledConfig(NamedTuple):
    """One entry point.

    Attributes:
        name: what ``--model`` calls it.
        reference: ``package`` or ``package:file``.
        origin: the distribution that it comes from, with its version.
    """

    name: str
    reference: str
    origin: str


def installed_configs() -> list[InstalledConfig]:
    """Those of all installed distributions, by name."""
    from importlib.metadata import entry_points  # takes long to import

    found = []
    for each in entry_points(group=ENTRY_POINTS):
        by = each.dist
        origin = "an unknown distribution" if by is None else f"{by.name} {by.version}"
        found.append(InstalledConfig(normalized(each.name), each.value, origin))
    return sorted(set(found))


def normalized(name: str) -> str:
    """A name as names are compared: case does not matter and ``-`` equals ``_``."""
    return name.lower().replace("-", "_")


def locate(reference: str, source: str) -> Path:
    """The file of ``package`` or ``package:file``. Only the package at the top is looked for where
    python looks, and nothing is imported.

    Raises:
        OptimizationConfigNotFoundError: there is none; the message says that `source` named it.
    """

    def missing(found: str) -> OptimizationConfigNotFoundError:
        accepted = f"package or package:file, a file in an installed package; {FILE} by default"
        return OptimizationConfigNotFoundError(f"{source}: found {found}; accepted: {accepted}")

    matched = _REFERENCE.fullmatch(reference)
    if matched is None:
        raise missing(repr(reference))
    top, *inner = matched[1].split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError, AttributeError):  # of a module that hides its spec
        spec = None
    folders = spec and spec.submodule_search_locations
    if not folders:
        raise missing(f"{reference!r}, where {top!r} is no package that can be imported")
    candidates = [Path(folder, *inner, matched[2] or FILE) for folder in folders]
    for file in candidates:
        if file.is_file():
            return file.absolute()
    raise missing(f"{reference!r}, and no file {' or '.join(map(str, candidates))}")
