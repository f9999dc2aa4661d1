"""What is known of watched modules: whose body runs, whose has run, and how often."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs

from turbo_physai.engine.claims import Claim
from turbo_physai.engine.import_state import is_unfinished
from turbo_physai.engine.slot import Slot, find
from turbo_physai.evidence import locate

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from turbo_physai.engine.records import Site


@attrs.frozen(eq=False)
class Run:
    """What `sys.modules` holds for a module whose body has run, and how often it has."""

    module: Any
    number: int


class Modules:
    """The runs of watched modules, and what they say about declared paths.

    Whoever changes it holds the report's lock.
    """

    def __init__(self, targets: frozenset[str], has_run: Callable[[str], None]) -> None:
        self._unseen = dict.fromkeys(targets)
        self._has_run = has_run
        self._runs: dict[str, Run] = {}
        self._numbers: Counter[str] = Counter()
        self._running: dict[str, tuple[Claim, int]] = {}

    def __contains__(self, name: object) -> bool:
        """Whether the body of the module `name` has run."""
        return name in self._runs

    def __getitem__(self, name: str) -> Run:
        return self._runs[name]

    def get(self, name: str) -> Run | None:
        return self._runs.get(name)

    def begin(self, name: str, frame: FrameType) -> None:
        """Notes that the function call `frame` is about to run the body of the module `name`."""
        claim = Claim()
        claim.take(frame)
        self._running[name] = claim, self._numbers[name]

    @property
    def are_running(self) -> bool:
        """Whether the body of any watched module runs."""
        for name in list(self._running):
            if self._running[name][0].is_held:
                return True
            del self._running[name]
        return False

    def is_running(self, name: str) -> bool:
        return name in self._running and self._running[name][0].is_held

    def interrupt(self, name: str, module: Any) -> bool:
        """Notes that the import of a module has failed, and tells whether `module` has run again
        all the same: the body of a reload that ends half-way has changed the module."""
        running = self._running.pop(name, None)
        if name not in self._runs or self._runs[name].module is not module:
            return False
        if is_unfinished(module):  # interrupted after its body had run: it is about to be dropped
            self._unseen[name] = None
            del self._runs[name]
            return False
        return running is not None and running[1] == self._numbers[name]

    def end(self, name: str, module: Any) -> None:
        """Notes that the body of `module` has run; it may have put another object in its place."""
        self._has_run(name)
        self._numbers[name] += 1
        self._runs[name] = Run(sys.modules.get(name, module), self._numbers[name])
        self._unseen.pop(name, None)
        self._running.pop(name, None)

    def unannounced(self) -> list[tuple[str, Any]]:
        """The targets that are in `sys.modules` although their loader never told of them.

        Takes no lock: it only looks names up.
        """
        # The import system does not tell of every body that it still runs: not of one that is run
        # by a lazy module or by a loader of the old kind.
        return [
            (name, sys.modules[name])
            for name in list(self._unseen)
            if sys.modules.get(name) is not None
            and name not in self._runs
            and not self.is_running(name)
        ]

    def holder(self, site: Site) -> str | None:
        """The module part of a path: its longest prefix that is a module. None until a package
        that may hold the rest has run, since only then its search path is certain."""
        if site.module is None and site.path is not None:
            if not any(name in self._runs for name in site.path.modules):
                return None
            for name in site.path.modules:
                spec = None if name in self._runs else locate.locate(name)
                if name in self._runs or (spec and spec.submodule_search_locations is None):
                    site.module = name
                    break
                if spec is not None:
                    break
        return site.module

    def run_of(self, site: Site) -> Run | None:
        """The latest run of the module that holds a path."""
        return self._runs.get(self.holder(site) or "")

    def is_due(self, site: Site) -> bool:
        """Whether the module that holds a path has run since it was last bound there."""
        run = self.run_of(site)
        return run is not None and not site.is_bound(run.module, run.number)

    def was_overwritten(self, site: Site) -> bool:
        """Whether a module in which it was bound has been run again, and not been bound since."""
        run = self.run_of(site)
        return run is not None and site.bound_in is run.module and site.runs != run.number

    def slot(self, site: Site) -> Slot:
        """The place of a path whose module has run.

        Raises:
            TargetError: a name on the way leads nowhere.
        """
        run = self.run_of(site)
        assert run is not None
        assert site.module is not None
        assert site.path is not None
        return find(run.module, site.path.names_in(site.module))
