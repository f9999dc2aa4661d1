"""What can be declared. Everything here is strings and tuples: declaring imports nothing."""

from turbo_physai.declarations.declaration import Declaration, Importing
from turbo_physai.declarations.during_import import DuringImport, during_import
from turbo_physai.declarations.group import Group, group
from turbo_physai.declarations.import_alias import ImportAlias, import_alias
from turbo_physai.declarations.inject import Inject, inject
from turbo_physai.declarations.names import ObjectPath
from turbo_physai.declarations.optional_import import OptionalImport, optional_import
from turbo_physai.declarations.options import NoOptions, option
from turbo_physai.declarations.registry import Registry
from turbo_physai.declarations.registry_override import RegistryOverride, registry_override
from turbo_physai.declarations.replace_import import ReplaceImport, replace_import
from turbo_physai.declarations.replacement import Replacement, replace, wrap

__all__ = [
    "Declaration",
    "DuringImport",
    "Group",
    "ImportAlias",
    "Importing",
    "Inject",
    "NoOptions",
    "ObjectPath",
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
