"""`inject`: a name that a module lacks."""

from __future__ import annotations

from typing import Any

import attrs

from turbo_physai.declarations.declaration import Declaration, Importing
from turbo_physai.declarations.names import ObjectPath, changed_module, object_path, one_name


@attrs.frozen
class Inject(Declaration):
    """`module`, which lacks `name`, gets the object at `value` under it."""

    kind = "inject"

    module: str
    name: str
    value: ObjectPath

    @property
    def paths(self) -> tuple[str, ...]:
        return (f"{self.module}:{self.name}",)

    def make(self, importing: Importing) -> Any:
        return importing.load(self.value)

    def put(self, importing: Importing, made: Any) -> None:
        importing.add_name(self.name, made)


def inject(module: str, name: str, value: str) -> Inject:
    """Declares a name that `module` lacks; `value` is the path of the object it gets."""
    return Inject(
        changed_module(module, "inject: module"),
        one_name(name, "inject: name"),
        object_path(value, "inject: value"),
    )
