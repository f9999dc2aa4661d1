"""What can be declared. Everything here is strings and tuples: declaring imports nothing."""

from turbo_physai.declarations.group import Group, Member, group
from turbo_physai.declarations.imports import (
    DuringImport,
    ImportAlias,
    ImportDeclaration,
    Inject,
    OptionalImport,
    RegistryOverride,
    ReplaceImport,
    during_import,
    import_alias,
    inject,
    optional_import,
    registry_override,
    replace_import,
)
from turbo_physai.declarations.options import NoOptions, option
from turbo_physai.declarations.registry import Registry
from turbo_physai.declarations.replacement import Replacement, replace, wrap

__all__ = [
    "DuringImport",
    "Group",
    "ImportAlias",
    "ImportDeclaration",
    "Inject",
    "Member",
    "NoOptions",
    "OptionalImport",
    "Registry",
    "RegistryOverride",
    "ReplaceImport",
    "Replacement",
    "during_import",
    "group",
    "import_alias",
    "inject",
    "option",
    "optional_import",
    "registry_override",
    "replace",
    "replace_import",
    "wrap",
]
