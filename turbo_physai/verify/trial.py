"""One comparison: the replacement and the original, each on copies of a call's arguments."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from turbo_physai.verify import libraries, roles
from turbo_physai.verify.compare import Comparison
from turbo_physai.verify.copies import Copies, NotComparableError, is_tensor, walk
from turbo_physai.verify.random_state import RandomState

_SEED: Final = 0


@attrs.frozen(eq=False)
class Call:
    """A call that is to be repeated.

    Attributes:
        args, kwargs: its arguments.
        name: gives such arguments their names.
        with_gradients: whether its caller records a graph.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    name: Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]]
    with_gradients: bool


@attrs.frozen(eq=False)
class _Outcome:
    """What one of the two has done: results, arguments afterwards and gradients, by name."""

    outputs: Mapping[str, Any] = {}
    arguments: Mapping[str, Any] = {}
    gradients: Mapping[str, Any] = {}
    error: Exception | None = None


def compare(
    call: Call,
    replacement: Callable[..., Any],
    original: Callable[..., Any],
    tolerance: float | None,
) -> Comparison:
    """Runs both, and leaves arguments, gradients and random numbers as they were.

    The gradients are those for one random gradient of each output: they are known before the
    model's own backward, so nothing wrong reaches the optimizer.

    Raises:
        NotComparableError: the arguments cannot be copied, the original raises, or there is too
            little memory.
    """
    state = RandomState.capture()
    try:
        with _apart():
            ours = _run("replacement", replacement, call)
            state.restore()
            theirs = _run("original", original, call)
    finally:
        state.restore()
    if theirs.error is not None:
        kind = type(theirs.error).__name__
        raise NotComparableError(f"the original raised {kind}: {theirs.error}") from theirs.error
    comparison = Comparison(tolerance)
    if ours.error is not None:
        kind = type(ours.error).__name__
        comparison.mismatch = f"the replacement raised {kind}: {ours.error}"
        return comparison
    comparison.add(ours.outputs, theirs.outputs, same=True)
    comparison.add(ours.arguments, theirs.arguments, same=False)
    comparison.add(ours.gradients, theirs.gradients, same=True)
    return comparison


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """Keeps what is saved for our backward from the hooks of activation checkpointing, and our
    copies out of autocast's cache of weights."""
    torch = libraries.torch()
    if torch is None:
        yield
        return
    is_cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            yield
    finally:
        torch.set_autocast_cache_enabled(is_cached)


def _run(role: roles.Role, function: Callable[..., Any], call: Call) -> _Outcome:
    copies = Copies.of(call.args, call.kwargs, call.name(call.args, call.kwargs))
    grad: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if call.with_gradients:
        grad = sys.modules["torch"].enable_grad()
    with roles.playing(role), grad:
        try:
            outputs = dict(walk({"output": function(*copies.args, **copies.kwargs)}))
            gradients = _gradients(outputs, copies.leaves) if call.with_gradients else {}
        except Exception as error:
            if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
                raise NotComparableError(f"not enough memory: {error}") from error
            return _Outcome(error=error)
    arguments = {
        f"argument {name}": _detached(value)
        for name, value in walk(call.name(copies.args, copies.kwargs))
        if is_tensor(value) or type(value).__module__ == "numpy"
    }
    return _Outcome({k: _detached(v) for k, v in outputs.items()}, arguments, gradients)


def _gradients(outputs: Mapping[str, Any], leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Of every leaf, for one random gradient of each output. They are not accumulated, so neither
    `.grad` nor the hooks of DDP take part."""
    roots = {k: v for k, v in outputs.items() if is_tensor(v) and v.requires_grad}
    if not roots or not leaves:
        return {}
    found = sys.modules["torch"].autograd.grad(
        list(roots.values()),
        list(leaves.values()),
        [_random_like(tensor) for tensor in roots.values()],
        allow_unused=True,
        materialize_grads=True,
    )
    return {f"gradient of {name}": grad for name, grad in zip(leaves, found, strict=True)}


def _random_like(tensor: Any) -> Any:
    torch: Any = sys.modules["torch"]
    generator = torch.Generator(tensor.device).manual_seed(_SEED)
    dtype = tensor.dtype if tensor.is_complex() else torch.float32
    made = torch.randn(tensor.shape, generator=generator, device=tensor.device, dtype=dtype)
    return made.to(tensor.dtype)


def _detached(value: Any) -> Any:
    return value.detach() if is_tensor(value) else value
