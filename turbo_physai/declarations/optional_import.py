"""`optional_import`: a stand-in where a module is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from turbo_physai.declarations.declaration import Declaration, Importing
from turbo_physai.declarations.names import changed_module, module_path

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

STAND_IN = "turbo_physai stand-in for a package that is not installed"


@attrs.frozen
class OptionalImport(Declaration):
    """A stand-in answers for imports of `module` where it is not installed: the module `stand_in`,
    or an empty one."""

    kind = "optional_import"

    module: str
    stand_in: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.module,)

    def provides(self, original: ModuleSpec | None) -> bool:
        return original is None

    def provide(self, importing: Importing, module: ModuleType) -> ModuleType:
        if self.stand_in is not None:
            return importing.import_module(self.stand_in)
        module.__doc__ = STAND_IN
        module.__path__ = []  # submodules may be declared too; none are found by themselves
        return module

    def put(self, importing: Importing, made: Any) -> None:
        if not importing.was_provided:
            importing.note("not needed: the module was there")


def optional_import(module: str, stand_in: str | None = None) -> OptionalImport:
    """Declares that importing `module`, if it is not installed, gives the module `stand_in`, or an
    empty one."""
    if stand_in is not None:
        module_path(stand_in, "optional_import: stand_in")
    return OptionalImport(changed_module(module, "optional_import: module"), stand_in)
