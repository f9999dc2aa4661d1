"""`import_alias`: one more name in a module."""

from __future__ import annotations

from typing import Any

import attrs

from turbo_physai.declarations.declaration import Declaration, Importing
from turbo_physai.declarations.names import ObjectPath, changed_module, object_path, one_name


@attrs.frozen
class ImportAlias(Declaration):
    """`module` gets one more name, `alias`, for the object at the path `source`."""

    kind = "import_alias"

    module: str
    source: ObjectPath
    alias: str

    @property
    def paths(self) -> tuple[str, ...]:
        return (f"{self.module}:{self.alias}",)

    def make(self, importing: Importing) -> Any:
        return importing.load(self.source)

    def put(self, importing: Importing, made: Any) -> None:
        importing.add_name(self.alias, made)


def import_alias(module: str, source: str, alias: str) -> ImportAlias:
    """Declares one more name, `alias`, in `module`, for the object at the path `source`."""
    return ImportAlias(
        changed_module(module, "import_alias: module"),
        object_path(source, "import_alias: source"),
        one_name(alias, "import_alias: alias"),
    )
