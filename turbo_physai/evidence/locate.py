"""Finds a module's file without importing it or its parents."""

from __future__ import annotations

import importlib.machinery
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Final, Literal

ModuleKind = Literal["source", "extension", "namespace", "other"]

_STATIC: Final = ("BuiltinImporter", "FrozenImporter", "PathFinder")


def locate(name: str) -> ModuleSpec | None:
    """The spec of the module `name`, loaded or not; None where it cannot be told statically.

    Parents that are loaded are asked for their real search path, the others for the one of their
    spec, so a package that computes its path when it runs hides its submodules until then.
    """
    loaded = sys.modules.get(name)
    if loaded is not None:
        spec = _raw(loaded, "__spec__")
        return spec if isinstance(spec, ModuleSpec) else None
    parent = name.rpartition(".")[0]
    path = None
    if parent:
        path = _search_path(parent)
        if path is None:
            return None
    for finder in _static_finders():
        try:
            found: ModuleSpec | None = finder.find_spec(name, path)
        except KeyError:
            # PathFinder looks up a namespace package's parent among the modules that are loaded.
            found = _namespace(name, path or ())
        except Exception:  # a broken finder breaks the import later, in its own words
            continue
        if found is not None:
            return found
    return None


def _namespace(name: str, path: Iterable[str]) -> ModuleSpec | None:
    """The spec of a namespace package, made as PathFinder makes it once the parent is loaded."""
    found = ModuleSpec(name, None, is_package=True)
    for finder in filter(None, map(pkgutil.get_importer, path)):
        portion = finder.find_spec(name)
        if portion is not None and portion.submodule_search_locations is not None:
            assert found.submodule_search_locations is not None
            found.submodule_search_locations += portion.submodule_search_locations
    return found if found.submodule_search_locations else None


def _search_path(package: str) -> list[str] | None:
    loaded = sys.modules.get(package)
    if loaded is not None:
        path = _raw(loaded, "__path__")
    else:
        spec = locate(package)
        path = None if spec is None else spec.submodule_search_locations
    # The path of a namespace package recomputes itself from its parent, which need not be loaded.
    path = getattr(path, "_path", path)
    return None if path is None else list(path)


def _static_finders() -> Iterator[Any]:
    """The finders that only look: any other one may import the parents while it searches."""
    for finder in list(sys.meta_path):
        in_importlib = getattr(finder, "__module__", "").startswith(
            ("_frozen_importlib", "importlib")
        )
        editable = getattr(finder, "__module__", "").startswith("__editable__")
        if editable or (in_importlib and getattr(finder, "__name__", "") in _STATIC):
            yield finder


def kind(spec: ModuleSpec) -> ModuleKind:
    """What a module is made from."""
    if spec.loader is None or type(spec.loader).__name__.endswith("NamespaceLoader"):
        return "namespace"
    suffixes: Sequence[str] = importlib.machinery.EXTENSION_SUFFIXES
    if spec.origin and spec.origin.endswith(tuple(suffixes)):
        return "extension"
    return "source" if source(spec) is not None else "other"


def source(spec: ModuleSpec) -> str | None:
    """The module's source text; None if there is none."""
    get_source = getattr(spec.loader, "get_source", None)
    try:
        if get_source is not None:
            text: str | None = get_source(spec.name)
            return text
        if spec.origin and spec.has_location:
            return importlib.machinery.SourceFileLoader(spec.name, spec.origin).get_source(
                spec.name
            )
    except (ImportError, OSError, UnicodeDecodeError, SyntaxError):
        pass
    return None


def artifact(spec: ModuleSpec) -> bytes | None:
    """The bytes of the module's file."""
    try:
        return Path(spec.origin).read_bytes() if spec.origin else None
    except OSError:
        return None


def _raw(module: Any, name: str) -> Any:
    """An attribute of a module, without waking one that waits to be loaded."""
    try:
        return object.__getattribute__(module, "__dict__").get(name)
    except AttributeError:
        return None
