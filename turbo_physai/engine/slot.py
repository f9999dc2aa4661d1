"""A slot: the one entry of a namespace or mapping that holds a target.

Everything is read from and written to the raw namespace. `getattr` would run descriptors, wake lazy
modules and turn a staticmethod into a function that cannot be put back.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, MutableMapping, Sequence
from types import ModuleType
from typing import Any, Final

import attrs


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


class TargetError(Exception):
    """A target that is missing, or of a kind that cannot be changed as declared."""


@attrs.frozen(eq=False)
class Slot:
    """The entry `name` of `owner`: a module, a class, a mapping or an instance."""

    owner: Any
    name: str

    @property
    def in_class(self) -> bool:
        return isinstance(self.owner, type)

    def raw(self) -> Any:
        """What the owner itself holds, as it is stored; ABSENT if it holds nothing."""
        return namespace(self.owner).get(self.name, ABSENT)

    def effective(self) -> Any:
        """What the owner holds, inherits or, being an instance, has from its class; as stored.

        Raises:
            TargetError: there is nothing of that name.
        """
        for holder in self._holders():
            held = namespace(holder).get(self.name, ABSENT)
            if held is not ABSENT:
                return held
        raise TargetError(f"{describe(self.owner)} has no {self.name!r}")

    @property
    def is_inherited(self) -> bool:
        """Whether the owner holds nothing itself, and what it shows comes from a class."""
        return self.raw() is ABSENT

    def _holders(self) -> tuple[Any, ...]:
        if self.in_class:
            return tuple(self.owner.__mro__)
        kind = type(self.owner)
        if kind is ModuleType or isinstance(self.owner, Mapping):
            return (self.owner,)
        return (self.owner, *kind.__mro__)

    def write(self, value: Any) -> None:
        """Puts `value` into the slot; ABSENT empties it.

        Raises:
            TypeError, AttributeError: the owner takes no such change.
        """
        if isinstance(self.owner, MutableMapping):
            _write_item(self.owner, self.name, value)
        elif isinstance(self.owner, ModuleType):
            # Past any __setattr__: replacing a name must not run the model's code.
            _write_item(namespace(self.owner), self.name, value)
        else:
            set_, delete = setattr, delattr
            if self.in_class:
                set_, delete = type.__setattr__, type.__delattr__
            if value is ABSENT:
                delete(self.owner, self.name)
            else:
                set_(self.owner, self.name, value)


def _write_item(mapping: MutableMapping[str, Any], name: str, value: Any) -> None:
    if value is ABSENT:
        del mapping[name]
    else:
        mapping[name] = value


def namespace(owner: Any) -> Any:
    """The mapping that holds the entries of `owner`."""
    if isinstance(owner, Mapping):
        return owner
    if isinstance(owner, type):
        return vars(owner)
    try:
        return object.__getattribute__(owner, "__dict__")
    except AttributeError:
        raise TargetError(
            f"{describe(owner)} has no __dict__; accepted: a module, a class, a mapping or an "
            "instance that has one"
        ) from None


def find(root: Any, names: Sequence[str]) -> Slot:
    """The slot at the end of `names`, followed from `root` (what `sys.modules` holds for a module).

    Raises:
        TargetError: a name on the way leads nowhere.
    """
    owner = root
    for name in names[:-1]:
        slot = Slot(owner, name)
        if isinstance(owner, (ModuleType, type, Mapping)):
            owner = slot.effective()
        else:  # an instance, such as a registry, may hold its mapping behind a property
            owner = getattr(owner, name, ABSENT)
            if owner is ABSENT:
                raise TargetError(f"{describe(slot.owner)} has no {name!r}")
    return Slot(owner, names[-1])


def describe(owner: Any) -> str:
    """An owner in words."""
    if isinstance(owner, ModuleType):
        return f"the module {object.__getattribute__(owner, '__name__')}"
    if inspect.isclass(owner):
        return f"the class {owner.__module__}.{owner.__qualname__}"
    return f"an object of type {type(owner).__qualname__}"
