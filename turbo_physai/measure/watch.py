"""Calls back when a module has been imported; until then nothing is imported for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from turbo_physai.engine.loader import watch


def on_import(name: str, callback: Callable[[], object]) -> None:
    """Calls `callback` once the module `name` has been executed; at once if it is there already."""
    if name in sys.modules:
        callback()
    else:
        sys.meta_path.insert(0, _OneModule(name, callback))


class _OneModule:
    """A finder that waits for one module, and leaves once that was executed."""

    def __init__(self, name: str, callback: Callable[[], object]) -> None:
        self._name = name
        self._callback = callback
        self._is_searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = self._ask_the_others(fullname, path, target)
        finally:
            self._is_searching = False
        if spec is not None:
            watch(spec, self)
        return spec

    def _ask_the_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec(fullname, path, target) if find_spec else None
            if spec is not None:
                return spec
        return None

    # What the loader tells.

    def before(self, spec: ModuleSpec) -> None:
        pass

    def failed(self, name: str, module: ModuleType | None) -> None:
        pass

    def after(self, name: str, module: Any) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._callback()
