"""`replace_import`: another module takes over a module path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from turbo_physai.declarations.declaration import Declaration, Importing
from turbo_physai.declarations.names import changed_module, module_path

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType


@attrs.frozen
class ReplaceImport(Declaration):
    """The module at `replacement` answers for imports of `target`."""

    kind = "replace_import"

    target: str
    replacement: str

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.target,)

    @property
    def module(self) -> str:
        return self.target

    @property
    def claims_module(self) -> bool:
        return True

    def provides(self, original: ModuleSpec | None) -> bool:
        return True

    def provide(self, importing: Importing, module: ModuleType) -> ModuleType:
        return importing.import_module(self.replacement)

    def put(self, importing: Importing, made: Any) -> None:
        if not importing.was_provided:
            importing.note("not needed: the module was there")


def replace_import(target: str, replacement: str) -> ReplaceImport:
    """Declares that importing the module `target` gives the module `replacement`."""
    return ReplaceImport(
        changed_module(target, "replace_import: target"),
        module_path(replacement, "replace_import: replacement"),
    )
