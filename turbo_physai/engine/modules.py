"""What is known of watched modules: whose body runs, whose has run, and how often."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import attrs

from turbo_physai.engine.captured import is_unfinished
from turbo_physai.engine.slot import Slot, find
from turbo_physai.engine.state import Site
from turbo_physai.evidence import locate


@attrs.frozen(eq=False)
class Run:
    """What `sys.modules` holds for a module whose body has run, and how often it has."""

    module: Any
    number: int


class Modules:
    """The runs of watched modules, and what they say about declared paths.

    Whoever changes it holds the report's lock.
    """

    def __init__(self, targets: frozenset[str]) -> None:
        self._targets = targets
        self._runs: dict[str, Run] = {}
        self._running: set[str] = set()

    def __contains__(self, name: object) -> bool:
        """Whether the body of the module `name` has run."""
        return name in self._runs

    def __getitem__(self, name: str) -> Run:
        return self._runs[name]

    def get(self, name: str) -> Run | None:
        return self._runs.get(name)

    def begin(self, name: str) -> None:
        self._running.add(name)

    def interrupt(self, name: str) -> None:
        self._running.discard(name)

    def end(self, name: str, module: Any) -> Run:
        """Notes that the body of `module` has run; it may have put another object in its place."""
        self._running.discard(name)
        number = self._runs[name].number + 1 if name in self._runs else 1
        self._runs[name] = Run(sys.modules.get(name, module), number)
        return self._runs[name]

    def notice(self) -> Iterator[str]:
        """Finds targets that are there although their loader never told."""
        # The import system does not tell of every body that it still runs: not of one that is run
        # by a lazy module or by a loader of the old kind.
        for name in self._targets - self._runs.keys() - self._running:
            module = sys.modules.get(name)
            if module is not None and not is_unfinished(module):
                self._runs[name] = Run(module, 1)
                yield name

    def holder(self, site: Site) -> str | None:
        """The module part of a path: its longest prefix that is a module. None until a package
        that may hold the rest has run, since only then its search path is certain."""
        if site.module is None:
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

    def slot(self, site: Site) -> Slot:
        """The place of a path whose module has run.

        Raises:
            TargetError: a name on the way leads nowhere.
        """
        run = self.run_of(site)
        assert run is not None
        assert site.module is not None
        return find(run.module, site.path.names_in(site.module))
