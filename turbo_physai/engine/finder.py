"""The finder at the front of `sys.meta_path`: it only spots watched modules, others load them."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Protocol

from turbo_physai.engine.imports import Providers, is_being_imported, spec_for
from turbo_physai.engine.loader import Events, watch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class Engine(Events, Providers, Protocol):
    """What the finder works for."""

    def provides(self, name: str, original: ModuleSpec | None) -> bool:
        """Whether a Group provides the module `name`, for which the others found `original`."""


class WatchingFinder:
    """Lets the finders behind it find watched modules and arms the specs that they return."""

    def __init__(self, watched: Iterable[str], engine: Engine) -> None:
        # Complete from the start and never changed: find_spec runs under the import system's own
        # lock, where a lock of ours could only be taken in the wrong order, so it takes none.
        self._watched = frozenset(watched)
        self._engine = engine
        self._searching = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._watched:
            return None
        # Other hooks (wrapt's, for one) start a new search through the whole of sys.meta_path from
        # within their find_spec. Answering that inner search too would arm one module twice.
        searching = self._searching.__dict__.setdefault("names", set())
        if fullname in searching:
            return None
        searching.add(fullname)
        try:
            spec = self._ask_the_others(fullname, path, target)
        finally:
            searching.discard(fullname)
        # A `target` is given by importlib.reload alone.
        imported = target is not None or is_being_imported()
        if imported and self._engine.provides(fullname, spec):
            return spec_for(fullname, spec, self._engine)
        if spec is not None:
            watch(spec, self._engine)
        return spec

    def _ask_the_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            if finder is not self and find_spec is not None:
                spec: ModuleSpec | None = find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    @property
    def is_first(self) -> bool:
        return bool(sys.meta_path) and sys.meta_path[0] is self
