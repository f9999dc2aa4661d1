"""Import-compatibility declarations at work: modules that are provided, names that are added.

Nothing here pretends. A module that takes another's place is itself in `sys.modules`, with its own
name and spec; a stand-in is empty and says what it is; and whoever only asks whether a package is
there is told the truth by the other finders.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol

from turbo_physai.declarations import (
    DuringImport,
    ImportAlias,
    Inject,
    OptionalImport,
    RegistryOverride,
    ReplaceImport,
)
from turbo_physai.engine.loader import part_of_the_import_system
from turbo_physai.engine.objects import call, load, place
from turbo_physai.engine.origins import origin
from turbo_physai.engine.slot import ABSENT, Slot, find
from turbo_physai.engine.transaction import Change
from turbo_physai.report import Origin

if TYPE_CHECKING:
    from turbo_physai.engine.state import GroupBinding, ImportBinding
    from turbo_physai.engine.transaction import Transaction

STAND_IN = "turbo_physai stand-in for a package that is not installed"
PROVIDES: Final = (ReplaceImport, OptionalImport)


class Providers(Protocol):
    """What a provided module tells the engine."""

    def provide(self, name: str, module: ModuleType) -> ModuleType | None:
        """The module that takes the place of the new, empty `module`; None if its Group has ended
        and the name is to be looked for as if nothing had been declared."""

    def after(self, name: str, module: Any) -> None:
        """It is in `sys.modules`."""


class ProvidingLoader:
    """The loader of a module that a Group provides under `name`."""

    def __init__(self, engine: Providers, original: ModuleSpec | None) -> None:
        self._engine = engine
        self._original = original

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    @part_of_the_import_system
    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        provided = self._engine.provide(name, module)
        if provided is None:
            provided = self._load_original(name)
        # The import system hands out what it finds here when we return.
        sys.modules[name] = provided
        self._engine.after(name, provided)

    @part_of_the_import_system
    def _load_original(self, name: str) -> ModuleType:
        if self._original is None or self._original.loader is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        original = module_from_spec(self._original)
        sys.modules[name] = original
        self._original.loader.exec_module(original)
        loaded: ModuleType = sys.modules[name]
        return loaded


def is_being_imported() -> bool:
    """Whether the search that runs now is for an import, and not for somebody who only asks.

    `importlib.util.find_spec`, with which libraries find out what is installed, goes through the
    finders just as an import does; only the function that called tells them apart.
    """
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_find_spec":
        frame = frame.f_back  # type: ignore[assignment]
    caller = frame.f_back if frame is not None else None
    return caller is not None and caller.f_code.co_name == "_find_and_load_unlocked"


def spec_for(name: str, original: ModuleSpec | None, engine: Providers) -> ModuleSpec:
    """The spec under which a provided module begins its life."""
    loader: Any = ProvidingLoader(engine, original)
    return ModuleSpec(name, loader, origin="turbo_physai")


def provide(member: ImportBinding, module: ModuleType) -> ModuleType:
    """The module for a ReplaceImport or OptionalImport; may import, so no lock may be held."""
    declared = member.declared
    assert isinstance(declared, PROVIDES)
    answers = declared.replacement if isinstance(declared, ReplaceImport) else declared.stand_in
    if answers is not None:
        __import__(answers)
        provided: ModuleType = sys.modules[answers]
        return provided
    module.__doc__ = STAND_IN
    module.__path__ = []  # submodules may be declared too; none are found by themselves
    return module


def record_provided(transaction: Transaction, name: str, provided: ModuleType) -> None:
    """Remembers the entries by which a provided module can be found, so that they go with it."""
    transaction.note(Slot(sys.modules, name), provided)
    parent, _, last = name.rpartition(".")
    if parent:  # the import system sets this attribute once we have returned
        transaction.note(Slot(sys.modules[parent], last), provided)


def add_name(group: GroupBinding, member: ImportBinding, module: Any, value: Any) -> None:
    """Gives `module` the declared name, unless it has it. The engine's lock must be held."""
    declared = member.declared
    assert isinstance(declared, (ImportAlias, Inject))
    name = declared.alias if isinstance(declared, ImportAlias) else declared.name
    slot = find(module, (name,))
    if slot.raw() is ABSENT:
        group.transaction.write(slot, value)
    if group.transaction.holds(slot):
        member.execution.note = ""
    else:
        member.execution.note = f"not needed: it has a {name!r} of its own"


def value_of(member: ImportBinding) -> Any:
    """The object that a module gets; may import, so no lock may be held."""
    declared = member.declared
    if isinstance(declared, ImportAlias):
        return load(declared.source)
    return load(declared.value) if isinstance(declared, Inject) else None


def author(member: ImportBinding) -> Origin | None:
    """What the declaration brings in; None for one that brings in nothing of its own."""
    declared = member.declared
    match declared:
        case ReplaceImport(replacement=name) | OptionalImport(stand_in=str(name)):
            return Origin(name, getattr(sys.modules.get(name), "__file__", None))
        case OptionalImport():
            return Origin("an empty stand-in module")
        case ImportAlias(source=path) | Inject(value=path) | DuringImport(factory=path):
            return origin(path, load(path))
    return None


def begin(group: GroupBinding, member: ImportBinding) -> None:
    """Makes the change that a member declares for the time that its module runs."""
    if isinstance(member.declared, RegistryOverride):
        _free_names(member, member.declared)
    elif isinstance(member.declared, DuringImport):
        _hold(member, member.declared, group.prepared.options)


def end(group: GroupBinding, member: ImportBinding) -> None:
    """Takes it back after the module has run."""
    if isinstance(member.declared, RegistryOverride):
        _settle_names(group, member, member.declared)
    elif member.held is not None:
        if member.held.slot.raw() is member.held.after:
            member.held.slot.write(member.held.before)
        member.held = None


def _free_names(member: ImportBinding, declared: RegistryOverride) -> None:
    """Takes registered names out of a registry before a module that registers them again runs."""
    registry = load(declared.registry)
    for name in declared.names:
        slot = Slot(registry, name)
        if slot.raw() is not ABSENT:
            member.freed[name] = slot.raw()
            slot.write(ABSENT)


def _settle_names(group: GroupBinding, member: ImportBinding, declared: RegistryOverride) -> None:
    """Names that the module registered are changes of ours, the others go back; all of them do if
    the Group has ended meanwhile."""
    if not member.freed:
        member.execution.note = "not needed: none of the names was registered"
        return
    registry = load(declared.registry)
    for name, before in member.freed.items():
        slot = Slot(registry, name)
        if slot.raw() is ABSENT or not group.state.is_open:
            slot.write(before)
        else:
            group.transaction.note(slot, slot.raw(), before)
    member.freed = {}


def _hold(member: ImportBinding, declared: DuringImport, options: Any) -> None:
    slot = place(declared.target)
    original = slot.effective()
    instead = call(declared.factory)(original, options)
    if instead is original:
        member.execution.note = "not needed: its factory returned the original"
        return
    member.execution.note = ""
    member.held = Change(slot, slot.raw(), instead)
    slot.write(instead)


def is_optional_and_missing(member: ImportBinding, original: ModuleSpec | None) -> bool:
    """Whether a stand-in is called for."""
    return isinstance(member.declared, OptionalImport) and original is None
