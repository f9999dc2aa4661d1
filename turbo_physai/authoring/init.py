"""Writes the beginning of a package that ships Groups, from the templates beside this file."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Final

from turbo_physai.authoring.decisions import searched
from turbo_physai.authoring.generate import generate_with_sources
from turbo_physai.config.installed import normalized
from turbo_physai.config.selection import packaged_configs
from turbo_physai.errors import Fault, OptimizationConfigError
from turbo_physai.evidence import validated

_TEMPLATES: Final = Path(__file__).with_name("template")


def init(name: str, folder: Path) -> list[Path]:
    """Writes a package called `name` into `folder`, which must be new or empty: it replaces a
    function of an example, can be installed, and passes its tests.

    Args:
        name: of the distribution, and of the model for ``--model``; the package is called so too,
            with ``_`` for ``-``.
        folder: where it is written.

    Returns:
        The files, as they were written.

    Raises:
        OptimizationConfigError: no package can have that name, or there is something in `folder`.
    """
    package = normalized(name)
    faults = list(_faults(name, package, folder))
    if faults:
        raise OptimizationConfigError(*faults)
    written = []
    for template in sorted(_TEMPLATES.rglob("*.tmpl")):
        file = folder / _target(template.relative_to(_TEMPLATES), package)
        text = Template(template.read_text(encoding="utf-8")).substitute(name=name, package=package)
        written.append(_write(file, text))
    recipe = folder / package / "recipe.yaml"
    config = recipe.with_name("optimization.yaml")
    with searched(folder):
        made = generate_with_sources(recipe, folder / "tests")
    written += [_write(config, made.config), _write(validated.beside(config), made.sources)]
    return written


def _faults(name: str, package: str, folder: Path) -> Iterator[Fault]:
    if not package.isidentifier() or not name.isascii():
        yield Fault("NAME", repr(name), "letters, digits, - and _, a letter first")
    elif package in packaged_configs():
        yield Fault("NAME", f"{name!r}, a model of turbo_physai's own", "another name")
    elif find_spec(package) is not None:
        yield Fault("NAME", f"{name!r}, a package that can be imported already", "another name")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "a folder with files in it" if folder.is_dir() else "a file"
        yield Fault(str(folder), what, "a folder that is new or empty")


def _target(template: Path, package: str) -> Path:
    parts = [package if part == "package" else part for part in template.with_suffix("").parts]
    return Path(*parts[:-1], ".gitignore" if parts[-1] == "gitignore" else parts[-1])


def _write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("x", encoding="utf-8") as new:
        new.write(text)
    return file
