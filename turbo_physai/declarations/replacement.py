"""`replace` and `wrap`: one object of the model takes another's place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import attrs

from turbo_physai.declarations.declaration import Declaration, Importing
from turbo_physai.declarations.names import ObjectPath, changed_object, object_path, texts

if TYPE_CHECKING:
    from collections.abc import Sequence


@attrs.frozen
class Replacement(Declaration):
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
        tolerance: how far results may be from those of the original where calls are verified, as a
            part of the largest absolute value; None for one that fits the dtype.
        verify: whether calls may be verified: False for what acts beyond its arguments and results,
            such as on files.
    """

    kind: Literal["replace", "wrap"]
    target: ObjectPath
    replacement: ObjectPath
    aliases: tuple[ObjectPath, ...] = ()
    runtime_condition: ObjectPath | None = None
    backend: ObjectPath | None = None
    tolerance: float | None = None
    verify: bool = True

    @property
    def paths(self) -> tuple[str, ...]:
        return self.targets

    @property
    def targets(self) -> tuple[ObjectPath, ...]:
        return (self.target, *self.aliases)

    @property
    def uses(self) -> tuple[ObjectPath, ...]:
        return tuple(filter(None, (self.replacement, self.runtime_condition, self.backend)))

    @property
    def modules(self) -> frozenset[str]:
        return frozenset(name for path in self.targets for name in path.modules)

    def make(self, importing: Importing) -> Any:
        return importing.make_exchange()

    def put(self, importing: Importing, made: Any) -> None:
        importing.put_exchange(made)


def replace(
    target: str,
    replacement: str,
    aliases: Sequence[str] = (),
    runtime_condition: str | None = None,
    backend: str | None = None,
    tolerance: float | None = None,
    verify: bool = True,
) -> Replacement:
    """Declares that the object at `replacement` takes the place of the one at `target`.

    Raises:
        TypeError, ValueError: a path is not a dotted name, or the tolerance no positive number.
    """
    made = _declare("replace", target, replacement, aliases, runtime_condition, backend)
    return _verified(made, tolerance, verify=verify)


def wrap(
    target: str,
    replacement: str,
    aliases: Sequence[str] = (),
    runtime_condition: str | None = None,
    backend: str | None = None,
    tolerance: float | None = None,
    verify: bool = True,
) -> Replacement:
    """Declares that ``factory(original, options)``, the factory being the object at `replacement`,
    takes the place of the object at `target`. `options` is an instance of the Group's schema.

    Raises:
        TypeError, ValueError: a path is not a dotted name, or the tolerance no positive number.
    """
    made = _declare("wrap", target, replacement, aliases, runtime_condition, backend)
    return _verified(made, tolerance, verify=verify)


def _verified(made: Replacement, tolerance: float | None, *, verify: bool) -> Replacement:
    if tolerance is not None:
        if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)):
            raise TypeError(f"{made.kind}: tolerance: found {tolerance!r}; accepted: a number")
        if not 0 <= tolerance < float("inf"):
            raise ValueError(f"{made.kind}: tolerance: found {tolerance}; accepted: 0 or more")
    if not isinstance(verify, bool):
        raise TypeError(f"{made.kind}: verify: found {verify!r}; accepted: True or False")
    return attrs.evolve(made, tolerance=tolerance, verify=verify)


def _declare(
    kind: Literal["replace", "wrap"],
    target: str,
    replacement: str,
    aliases: Sequence[str],
    runtime_condition: str | None,
    backend: str | None,
) -> Replacement:
    def optional(path: str | None, what: str) -> ObjectPath | None:
        return None if path is None else object_path(path, f"{kind}: {what}")

    return Replacement(
        kind,
        changed_object(target, f"{kind}: target"),
        object_path(replacement, f"{kind}: replacement"),
        tuple(changed_object(a, f"{kind}: alias") for a in texts(aliases, f"{kind}: aliases")),
        optional(runtime_condition, "runtime_condition"),
        optional(backend, "backend"),
    )
