"""Modules that a Group provides: how they are imported in the place of others.

Nothing here pretends. A module that takes another's place is itself in `sys.modules`, with its own
name and spec; a stand-in is empty and says what it is; and whoever only asks whether a package is
there is told the truth by the other finders.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from turbo_physai.engine.loader import part_of_the_import_system
from turbo_physai.engine.slot import Slot

if TYPE_CHECKING:
    from turbo_physai.engine.transaction import Transaction


class Providers(Protocol):
    """What a provided module tells the engine."""

    def provide(self, name: str, module: ModuleType) -> ModuleType | None:
        """The module that takes the place of the new, empty `module`; None if its Group has ended
        and the name is to be looked for as if nothing had been declared."""

    def after(self, name: str, module: Any) -> None:
        """It is in `sys.modules`."""


class ProvidingLoader:
    """The loader of a module that a Group provides under `name`."""

    def __init__(self, engine: Providers, original: ModuleSpec | None) -> None:
        self._engine = engine
        self._original = original

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    @part_of_the_import_system
    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        provided = self._engine.provide(name, module)
        if provided is None:
            provided = self._load_original(name)
        # The import system hands out what it finds here when we return.
        sys.modules[name] = provided
        self._engine.after(name, provided)

    @part_of_the_import_system
    def _load_original(self, name: str) -> ModuleType:
        if self._original is None or self._original.loader is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        original = module_from_spec(self._original)
        sys.modules[name] = original
        self._original.loader.exec_module(original)
        loaded: ModuleType = sys.modules[name]
        return loaded


def is_being_imported() -> bool:
    """Whether the search that runs now is for an import, and not for somebody who only asks.

    `importlib.util.find_spec`, with which libraries find out what is installed, goes through the
    finders just as an import does; only the function that called tells them apart.
    """
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_find_spec":
        frame = frame.f_back  # type: ignore[assignment]
    caller = frame.f_back if frame is not None else None
    return caller is not None and caller.f_code.co_name == "_find_and_load_unlocked"


def spec_for(name: str, original: ModuleSpec | None, engine: Providers) -> ModuleSpec:
    """The spec under which a provided module begins its life."""
    loader: Any = ProvidingLoader(engine, original)
    return ModuleSpec(name, loader, origin="turbo_physai")


def record_provided(transaction: Transaction, name: str, provided: ModuleType) -> None:
    """Remembers the entries by which a provided module can be found, so that they go with it."""
    transaction.note(Slot(sys.modules, name), provided)
    parent, _, last = name.rpartition(".")
    if parent:  # the import system sets this attribute once we have returned
        transaction.note(Slot(sys.modules[parent], last), provided)
