"""Decides which calls are compared, and what follows from it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from turbo_physai.engine.calls import (
    Verification,
    compiling,
    described,
    named_arguments,
)
from turbo_physai.verify import libraries, roles
from turbo_physai.verify.copies import NotComparableError
from turbo_physai.verify.functions import Pair, has_context, is_function, pin
from turbo_physai.verify.trial import Call, compare

if TYPE_CHECKING:
    from turbo_physai.declarations import Replacement
    from turbo_physai.engine.observing import Watched
    from turbo_physai.engine.records import MemberRecord

_CONSTRUCTORS: Final = ("__init__", "__new__", "__init_subclass__")

_PAIRED: Final = "compared together with its forward"
_COMPILED: Final = "its caller is compiled, and what is compiled runs no Python"


class MismatchError(Exception):
    """A Replacement does not do what its original does."""


@attrs.frozen
class Verifier:
    """Compares calls of Replacements with the originals; a `CallObserver`.

    Attributes:
        first: how many calls of each, with gradients and without, are compared from the first on.
        every: every how manyth call is compared after these; 0 for none.
        folder: where the arguments of a call that differed are kept; None for nowhere.
    """

    first: int
    every: int = 0
    folder: str | None = None
    _members: list[MemberRecord] = attrs.field(factory=list, init=False)

    def around(self, watched: Watched) -> Callable[..., Any]:
        record = watched.member.verification = watched.member.verification or Verification()
        self._members.append(watched.member)
        why = _why_not(watched)
        if why:
            record.skip(why)
        owner = watched.slot.owner
        is_forward = is_function(owner) and watched.slot.name == "forward" and has_context(owner)
        if is_forward:
            pair = Pair(watched)
            return _OfFunction(self, watched, record, bool(why), pair=pair).wrapper()
        if why == _PAIRED and has_context(owner):
            return watched.replacement  # nodes that the original made call the original's
        return _Plain(self, watched, record, bool(why)).wrapper()

    @contextlib.contextmanager
    def not_counting(self) -> Iterator[None]:
        """Takes no account of the calls that a comparison makes."""
        counted = [
            each.calls
            for member in self._members
            for each in member.exchanges
            if each.calls is not None
        ]
        before = [(each.replacement, each.original, each.first_original) for each in counted]
        try:
            yield
        finally:
            for each, counts in zip(counted, before, strict=True):
                each.replacement, each.original, each.first_original = counts

    def is_due(self, number: int) -> bool:
        """Whether the call of this number is compared; they are counted from 0."""
        after = number - self.first + 1
        return after <= 0 or (self.every > 0 and after % self.every == 0)


def _why_not(watched: Watched) -> str:
    """Why no call of a Replacement can be compared; empty if they can."""
    if not cast("Replacement", watched.member.declared).verify:
        return "declared with verify=False"
    if watched.slot.in_class and watched.slot.name in _CONSTRUCTORS:
        return "a constructor: what it makes is not finished"
    if is_function(watched.slot.owner) and watched.slot.name == "backward":
        paths = [member.sites[0].path for member in watched.group.members]
        target = watched.member.sites[0].path
        forward = str(target).removesuffix("backward") + "forward"
        if any(str(path) == forward for path in paths):
            return _PAIRED
    return ""


@attrs.define(eq=False)
class _Comparing:
    """The calls of one Replacement."""

    verifier: Verifier
    watched: Watched
    record: Verification
    off: bool
    # Calls with gradients and without: where activation checkpointing runs a function first without
    # a graph, the calls that have one are still to come.
    seen: dict[bool, int] = attrs.field(factory=lambda: {True: 0, False: 0})

    def is_original(self) -> bool:
        """Whether the original is to run: for a comparison, or since the Group was rolled back."""
        return roles.current() == "original" or not self.watched.group.state.is_open

    def is_due(self, *, with_graph: bool) -> bool:
        """Whether the call that begins now is to be compared."""
        if self.off or roles.current() is not None:
            return False
        number = self.seen[with_graph]
        self.seen[with_graph] = number + 1
        return self.verifier.is_due(number)

    def is_right(
        self,
        call: Call,
        replacement: Callable[..., Any],
        original: Callable[..., Any],
    ) -> bool:
        """Compares a call. False if the two differ: the Group is rolled back then."""
        try:
            if why := _why_not_now():
                raise NotComparableError(why)
            with roles.exclusive() as mine:
                if not mine:
                    raise NotComparableError("another thread compares a call")
                tolerance = cast("Replacement", self.watched.member.declared).tolerance
                with self.verifier.not_counting():
                    found = compare(call, replacement, original, tolerance)
        except NotComparableError as error:
            self.record.skip(str(error))
            return True
        except Exception as error:
            # What cannot be read or compared is no reason to stop a training.
            self.record.skip(f"{type(error).__name__} when it was compared: {error}")
            return True
        record = self.record
        record.calls += 1
        record.with_gradients += any(name.startswith("gradient of") for name in found.errors)
        for name, errors in found.errors.items():
            if name.startswith("argument") and not errors[0]:
                continue  # nobody has changed it
            before = record.errors.get(name, (0.0, 0.0))
            record.errors[name] = max(before[0], errors[0]), max(before[1], errors[1])
        if not found.mismatch:
            return True
        number = self.seen[call.with_gradients]
        record.mismatch = f"call {number}: {found.mismatch}"
        record.inputs = described(lambda: call.name(call.args, call.kwargs))
        record.saved = self._save(call)
        self.watched.fail(MismatchError(f"{record.mismatch}. Inputs: {record.inputs}"))
        return False

    def _save(self, call: Call) -> str | None:
        torch = libraries.torch()
        if self.verifier.folder is None or torch is None:
            return None
        target = self.watched.member.target
        file = Path(self.verifier.folder) / f"{self.watched.group.id}-{target}-{os.getpid()}.pt"
        kept = {"target": target, "args": call.args, "kwargs": dict(call.kwargs)}
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            torch.save({**kept, "torch_random_state": torch.get_rng_state()}, file)
        except Exception as error:
            return f"not kept: {type(error).__name__}: {error}"
        return f'torch.load("{file}", weights_only=False) holds args and kwargs of the call'


@attrs.define(eq=False)
class _Plain(_Comparing):
    """Of a function or method."""

    def wrapper(self) -> Callable[..., Any]:
        replacement, original = self.watched.replacement, self.watched.original
        record = self.record
        is_compiling, note = compiling(lambda: record.skip(_COMPILED))

        def verified(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                note()
                return replacement(*args, **kwargs)
            if self.is_original():
                return original(*args, **kwargs)
            with_graph = _records_a_graph()
            if self.is_due(with_graph=with_graph):
                call = Call(args, kwargs, self._named, with_graph)
                if not self.is_right(call, replacement, original):
                    return original(*args, **kwargs)
            return replacement(*args, **kwargs)

        return verified

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return named_arguments(self.watched.original, args, kwargs)


@attrs.define(eq=False)
class _OfFunction(_Comparing):
    """Of the forward of an autograd Function."""

    pair: Pair = attrs.field(kw_only=True)

    def wrapper(self) -> Callable[..., Any]:
        replacement, original = self.watched.replacement, self.watched.original

        def verified(ctx: Any, *args: Any) -> Any:
            is_original = self.is_original()
            with_graph = any(ctx.needs_input_grad)
            if not is_original and self.is_due(with_graph=with_graph):
                call = Call(args, {}, self._named, with_graph)
                is_original = not self.is_right(
                    call, self.pair.replacement.apply, self.pair.original.apply
                )
            pin(ctx, self.pair.original if is_original else self.pair.replacement)
            return (original if is_original else replacement)(ctx, *args)

        return verified

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        named = named_arguments(self.watched.original, (None, *args), kwargs)
        return dict(list(named.items())[1:])


def _records_a_graph() -> bool:
    torch = libraries.torch()
    return torch is not None and bool(torch.is_grad_enabled())


def _why_not_now() -> str:
    """Why this call cannot be compared; empty if it can."""
    torch: Any = libraries.torch()
    if torch is None:
        return ""
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured"
    # To go to the original in the middle would save other tensors than the first run has.
    has_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: True)
    if torch._C._current_graph_task_id() != -1 and has_hooks(True):
        return "recomputed by activation checkpointing, and compared when it was first run"
    return ""
