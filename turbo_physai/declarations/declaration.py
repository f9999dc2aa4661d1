"""What every kind of declaration says of itself, and what it does while a module is imported.

A kind is one class in a file of its own. It acts through what the engine offers it, `Importing`, so
that declarations know nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from turbo_physai.declarations.names import ObjectPath

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class Importing(Protocol):
    """What the engine offers a declaration while the module that it acts on is imported.

    Whatever imports or calls foreign code is for `provide`, `before` and `make`, which run without
    a lock; what changes the module for good is for `put`, which runs under the engine's.
    """

    @property
    def options(self) -> Any:
        """The options of the Group, an instance of its schema."""

    @property
    def was_provided(self) -> bool:
        """Whether the declaration has answered for the import of its module."""

    def load(self, path: ObjectPath) -> Any:
        """The object at a path, as its namespace stores it; its module is imported if need be."""

    def call(self, path: ObjectPath, *arguments: Any) -> Any:
        """What the function at a path returns."""

    def import_module(self, name: str) -> ModuleType:
        """The module of that name."""

    def note(self, text: str) -> None:
        """Says in the report what there is to say beyond the state; empty if nothing."""

    def add_name(self, name: str, value: Any) -> None:
        """Gives the module a name, unless it has it."""

    def exchange_while_importing(self, path: ObjectPath, make: Callable[[Any], Any]) -> None:
        """Puts ``make(original)`` at a path until the body of the module has run."""

    def remove_while_importing(self, path: ObjectPath, names: Iterable[str]) -> None:
        """Takes items out of the mapping at a path until the body of the module has run. Those
        that it registers again stay, as changes of the Group."""

    def make_exchange(self) -> Any:
        """The new object for the target of a Replacement; None if that is bound already."""

    def put_exchange(self, made: Any) -> None:
        """Puts it at the target and its aliases."""


@attrs.frozen
class Declaration:
    """One declared change."""

    @property
    def kind(self) -> str:
        """Its name in reports."""
        raise NotImplementedError

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that it changes, the most important first: what no other Group may."""
        raise NotImplementedError

    @property
    def targets(self) -> tuple[ObjectPath, ...]:
        """Those of the paths that are objects of the model, whose source is evidence."""
        return ()

    @property
    def uses(self) -> tuple[ObjectPath, ...]:
        """The paths of the objects that take part in a Replacement."""
        return ()

    @property
    def module(self) -> str | None:
        """The module whose import it acts on; None where that depends on what its targets are."""
        return None

    @property
    def modules(self) -> frozenset[str]:
        """The modules that have to be watched for it."""
        return frozenset() if self.module is None else frozenset({self.module})

    @property
    def claims_module(self) -> bool:
        """Whether it answers for its module and all below it."""
        return False

    # What it does, in the order of an import.

    def provides(self, original: ModuleSpec | None) -> bool:
        """Whether it answers for the import of its module, for which others found `original`."""
        return False

    def provide(self, importing: Importing, module: ModuleType) -> ModuleType:
        """The module that answers; `module` is new and empty."""
        raise NotImplementedError

    def before(self, importing: Importing) -> None:
        """The body of the module is about to run."""

    def make(self, importing: Importing) -> Any:
        """The body has run: what `put` needs."""

    def put(self, importing: Importing, made: Any) -> None:
        """Changes the module."""
