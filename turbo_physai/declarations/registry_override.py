"""`registry_override`: names that may be registered again while a module is imported."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from turbo_physai.declarations.declaration import Declaration, Importing
from turbo_physai.declarations.names import ObjectPath, changed_module, object_path, texts


@attrs.frozen
class RegistryOverride(Declaration):
    """While `module` is imported, `names` may be registered again in the registry at `registry`."""

    kind = "registry_override"

    module: str
    registry: ObjectPath
    names: tuple[str, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(f"{self.registry}[{name}] in {self.module}" for name in self.names)

    def before(self, importing: Importing) -> None:
        importing.remove_while_importing(self.registry, self.names)


def registry_override(module: str, registry: str, names: Sequence[str]) -> RegistryOverride:
    """Declares that, while `module` is imported, `names` may be registered again.

    `registry` is the path of the mapping that holds the registered objects.
    """
    return RegistryOverride(
        changed_module(module, "registry_override: module"),
        object_path(registry, "registry_override: registry"),
        texts(names, "registry_override: names"),
    )
