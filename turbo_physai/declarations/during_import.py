"""`during_import`: what a module finds at a path while it is imported."""

from __future__ import annotations

import attrs

from turbo_physai.declarations.declaration import Declaration, Importing
from turbo_physai.declarations.names import ObjectPath, changed_module, changed_object, object_path


@attrs.frozen
class DuringImport(Declaration):
    """While `module` is imported, the object at `target` is what ``factory(original, options)``
    returned, the factory being the object at `factory`."""

    kind = "during_import"

    module: str
    target: ObjectPath
    factory: ObjectPath

    @property
    def paths(self) -> tuple[str, ...]:
        return (f"{self.target} in {self.module}",)

    def before(self, importing: Importing) -> None:
        importing.exchange_while_importing(
            self.target, lambda old: importing.call(self.factory, old, importing.options)
        )


def during_import(module: str, target: str, factory: str) -> DuringImport:
    """Declares what `module` finds at the path `target` while it is imported: what
    ``factory(original, options)`` returns. Afterwards the original is there again. Whatever else
    looks in the meantime, such as an import that `module` makes, finds it too."""
    return DuringImport(
        changed_module(module, "during_import: module"),
        changed_object(target, "during_import: target"),
        object_path(factory, "during_import: factory"),
    )
