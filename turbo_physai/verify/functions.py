"""Autograd Functions, whose `forward` and `backward` are one thing in two methods.

They are compared by applying two classes, one with the methods of the replacement and one with
those of the original, and a node of the model's graph keeps the backward that fits its forward,
also when the Group is rolled back in between.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import attrs

from turbo_physai.engine.slot import ABSENT
from turbo_physai.verify import libraries

if TYPE_CHECKING:
    from turbo_physai.engine.observing import Watched


def is_function(owner: Any) -> bool:
    """Whether `owner` is a class of autograd Functions."""
    torch = libraries.torch()
    base = None if torch is None else torch.autograd.Function
    return base is not None and isinstance(owner, type) and issubclass(owner, base)


def has_context(owner: Any) -> bool:
    """Whether its forward is given a context, as it is unless there is a `setup_context`."""
    base: Any = sys.modules["torch"].autograd.Function
    return owner.setup_context is base.setup_context


@attrs.define(eq=False)
class Pair:
    """The two classes of a Function of which `forward` was replaced; made at its first call, when
    all members of the Group are bound."""

    watched: Watched
    _made: tuple[Any, Any] | None = None

    @property
    def replacement(self) -> Any:
        return self._classes()[0]

    @property
    def original(self) -> Any:
        return self._classes()[1]

    def _classes(self) -> tuple[Any, Any]:
        if self._made is None:
            watched = self.watched
            owner: Any = watched.slot.owner
            make, name = type(owner), owner.__name__
            ours = {"backward": owner.__dict__.get("backward", owner.backward)}
            held = watched.group.transaction.originals(owner)
            theirs = {name: value for name, value in held.items() if value is not ABSENT}
            forward = {"forward": staticmethod(watched.replacement)}
            old = {"forward": staticmethod(watched.original)}
            self._made = (
                make(name, (owner,), {**ours, **forward}),
                make(name, (owner,), {**ours, **theirs, **old}),
            )
        return self._made


def pin(ctx: Any, cls: Any) -> None:
    """Has a node call the backward of `cls`."""
    ctx._forward_cls = cls
