"""Import-compatibility declarations: what lets a model's import statements succeed at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from turbo_physai.declarations.names import module_path, object_path, of_others, texts

if TYPE_CHECKING:
    from collections.abc import Sequence


@attrs.frozen
class ReplaceImport:
    """The module at `replacement` answers for imports of `target`."""

    target: str
    replacement: str

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.target,)


@attrs.frozen
class ImportAlias:
    """`module` gets one more name, `alias`, for the object at the path `source`."""

    module: str
    source: str
    alias: str

    @property
    def paths(self) -> tuple[str, ...]:
        return (f"{self.module}:{self.alias}",)


@attrs.frozen
class OptionalImport:
    """A stand-in answers for imports of `module` where it is not installed: the module `stand_in`,
    or an empty one."""

    module: str
    stand_in: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.module,)


@attrs.frozen
class RegistryOverride:
    """While `module` is imported, `names` may be registered again in the registry at `registry`."""

    module: str
    registry: str
    names: tuple[str, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(f"{self.registry}[{name}] in {self.module}" for name in self.names)


@attrs.frozen
class DuringImport:
    """While `module` is imported, the object at `target` is what ``factory(original, options)``
    returned, the factory being the object at `factory`."""

    module: str
    target: str
    factory: str

    @property
    def paths(self) -> tuple[str, ...]:
        return (f"{self.target} in {self.module}",)


@attrs.frozen
class Inject:
    """`module`, which lacks `name`, gets the object at `value` under it."""

    module: str
    name: str
    value: str

    @property
    def paths(self) -> tuple[str, ...]:
        return (f"{self.module}:{self.name}",)


ImportDeclaration = (
    ReplaceImport | ImportAlias | OptionalImport | RegistryOverride | DuringImport | Inject
)


def replace_import(target: str, replacement: str) -> ReplaceImport:
    """Declares that importing the module `target` gives the module `replacement`."""
    return ReplaceImport(
        _changed(target, "replace_import: target"),
        module_path(replacement, "replace_import: replacement"),
    )


def import_alias(module: str, source: str, alias: str) -> ImportAlias:
    """Declares one more name, `alias`, in `module`, for the object at the path `source`."""
    return ImportAlias(
        _changed(module, "import_alias: module"),
        object_path(source, "import_alias: source"),
        _name(alias, "import_alias: alias"),
    )


def optional_import(module: str, stand_in: str | None = None) -> OptionalImport:
    """Declares that importing `module`, if it is not installed, gives the module `stand_in`, or an
    empty one."""
    if stand_in is not None:
        module_path(stand_in, "optional_import: stand_in")
    return OptionalImport(_changed(module, "optional_import: module"), stand_in)


def registry_override(module: str, registry: str, names: Sequence[str]) -> RegistryOverride:
    """Declares that, while `module` is imported, `names` may be registered again.

    `registry` is the path of the mapping that holds the registered objects.
    """
    return RegistryOverride(
        _changed(module, "registry_override: module"),
        object_path(registry, "registry_override: registry"),
        texts(names, "registry_override: names"),
    )


def during_import(module: str, target: str, factory: str) -> DuringImport:
    """Declares what `module` finds at the path `target` while it is imported: what
    ``factory(original, options)`` returns. Afterwards the original is there again. Whatever else
    looks in the meantime, such as an import that `module` makes, finds it too."""
    return DuringImport(
        _changed(module, "during_import: module"),
        of_others(object_path(target, "during_import: target"), "during_import: target"),
        object_path(factory, "during_import: factory"),
    )


def inject(module: str, name: str, value: str) -> Inject:
    """Declares a name that `module` lacks; `value` is the path of the object it gets."""
    return Inject(
        _changed(module, "inject: module"),
        _name(name, "inject: name"),
        object_path(value, "inject: value"),
    )


def _changed(module: str, what: str) -> str:
    return of_others(module_path(module, what), what)


def _name(value: str, what: str) -> str:
    if not isinstance(value, str) or not value.isidentifier():
        raise ValueError(f"{what} is one name, found {value!r}")
    return value
