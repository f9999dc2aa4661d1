"""The finder at the front of `sys.meta_path`: it only spots watched modules, others load them."""

from __future__ import annotations

import sys
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol

from turbo_physai.engine.loader import Events, watch
from turbo_physai.engine.provided import Providers, is_being_imported, spec_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class Engine(Events, Providers, Protocol):
    """What the finder works for."""

    def provides(self, name: str, original: ModuleSpec | None) -> bool:
        """Whether a Group provides the module `name`, for which the others found `original`."""

    def displaced(self, name: str) -> None:
        """Another finder stands in front, and may have found watched modules by itself. Noticed in
        a search for `name`, so no lock may be taken and nothing be bound."""


class WatchingFinder:
    """Lets the finders behind it find watched modules and arms the specs that they return.

    Attributes:
        displaced_by: the name of the finder that was last found in front of this one.
        is_contested: whether a finder put itself in front again after this one had moved there.
    """

    def __init__(self, watched: Iterable[str], engine: Engine) -> None:
        # Complete from the start and never changed: find_spec runs under the import system's own
        # lock, where a lock of ours could only be taken in the wrong order, so it takes none.
        self._watched = frozenset(watched)
        self._engine = engine
        self._overtaken: list[Any] = []
        self.displaced_by: str | None = None
        self.is_contested = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # Inline and first, because every import of anything comes past here.
        finders = sys.meta_path
        if not finders or finders[0] is not self:
            self.return_to_front()
            self._engine.displaced(fullname)
        return self._find_watched(fullname, path, target) if fullname in self._watched else None

    def _find_watched(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        # Other hooks (wrapt's, for one) start a new search through the whole of sys.meta_path from
        # within their find_spec. Answering that inner search too would arm one module twice.
        if self._is_searching(fullname):
            return None
        spec = self._ask_the_others(fullname, path, target)
        # A `target` is given by importlib.reload alone.
        imported = target is not None or is_being_imported()
        if imported and self._engine.provides(fullname, spec):
            return spec_for(fullname, spec, self._engine)
        if spec is not None:
            watch(spec, self._engine)
        return spec

    def _is_searching(self, fullname: str) -> bool:
        """Whether this thread is in a search for `fullname` already: its stack tells, which unlike
        a note of ours no interrupt can leave behind."""
        own = type(self)._find_watched.__code__
        frame = sys._getframe(1).f_back
        while frame is not None:
            if frame.f_code is own and frame.f_locals.get("fullname") == fullname:
                return True
            frame = frame.f_back
        return False

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

    def return_to_front(self) -> None:
        """Moves ahead of the finders that were put in front.

        That changes nothing for them: what is not watched is theirs as before, and for a watched
        module they are asked in their order. One that comes in front once more is left there.
        """
        ahead = list(takewhile(lambda each: each is not self, sys.meta_path))
        if not ahead or self.is_removed:
            return
        self.displaced_by = _name(ahead[0])
        if any(each is known for each in ahead for known in self._overtaken):
            self.is_contested = True
            return
        self._overtaken += ahead
        # The old entry stays. Somebody may be walking through the list, and would pass us by.
        sys.meta_path.insert(0, self)

    @property
    def is_removed(self) -> bool:
        return not any(each is self for each in sys.meta_path)


def _name(finder: Any) -> str:
    kind = finder if isinstance(finder, type) else type(finder)
    return f"{kind.__module__}.{kind.__qualname__}"
