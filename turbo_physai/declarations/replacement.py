"""`replace` and `wrap`: one object of the model takes another's place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from turbo_physai.declarations.names import ObjectPath, object_path, of_others, texts

if TYPE_CHECKING:
    from collections.abc import Sequence


@attrs.frozen
class Replacement:
    """One declared change of one object.

    Attributes:
        kind: ``replace`` puts the object at `replacement` in the target's place; ``wrap`` calls it
            as ``factory(original, options)`` and puts there what it returns.
        target: path of the object to change.
        replacement: path of the object, or of the factory.
        aliases: other paths that hold the same object and change with it.
        runtime_condition: path of a predicate that gets each call's arguments and decides with a
            `bool` whether the replacement (True) or the original (False) runs.
        backend: path of ``backend() -> BackendResult``, which is asked when the replacement is
            bound: what serves it in this process.
    """

    kind: Literal["replace", "wrap"]
    target: str
    replacement: str
    aliases: tuple[str, ...] = ()
    runtime_condition: str | None = None
    backend: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that it changes, the target first."""
        return (self.target, *self.aliases)

    @property
    def uses(self) -> tuple[str, ...]:
        """The paths of the objects that it brings in."""
        return tuple(filter(None, (self.replacement, self.runtime_condition, self.backend)))

    @property
    def modules(self) -> frozenset[str]:
        """The modules that may hold one of these paths."""
        return frozenset(name for path in self.paths for name in ObjectPath.parse(path).modules)


def replace(
    target: str,
    replacement: str,
    aliases: Sequence[str] = (),
    runtime_condition: str | None = None,
    backend: str | None = None,
) -> Replacement:
    """Declares that the object at `replacement` takes the place of the one at `target`.

    Raises:
        TypeError, ValueError: a path is not a dotted name.
    """
    return _declare("replace", target, replacement, aliases, runtime_condition, backend)


def wrap(
    target: str,
    replacement: str,
    aliases: Sequence[str] = (),
    runtime_condition: str | None = None,
    backend: str | None = None,
) -> Replacement:
    """Declares that ``factory(original, options)``, the factory being the object at `replacement`,
    takes the place of the object at `target`. `options` is an instance of the Group's schema.

    Raises:
        TypeError, ValueError: a path is not a dotted name.
    """
    return _declare("wrap", target, replacement, aliases, runtime_condition, backend)


def _declare(
    kind: Literal["replace", "wrap"],
    target: str,
    replacement: str,
    aliases: Sequence[str],
    runtime_condition: str | None,
    backend: str | None,
) -> Replacement:
    if runtime_condition is not None:
        object_path(runtime_condition, f"{kind}: runtime_condition")
    if backend is not None:
        object_path(backend, f"{kind}: backend")
    return Replacement(
        kind,
        _changed(target, f"{kind}: target"),
        object_path(replacement, f"{kind}: replacement"),
        tuple(_changed(a, f"{kind}: alias") for a in texts(aliases, f"{kind}: aliases")),
        runtime_condition,
        backend,
    )


def _changed(path: str, what: str) -> str:
    return of_others(object_path(path, what), what)
