"""A wrapper factory around `torch.compile`, for any function or method of a model.

    group(
        "model.compile",
        wrap("model.layers.Layer.forward", "turbo_physai.optimizations.compiled:compiled"),
        options=CompileOptions,
    )

Options of the Group, all of them `torch.compile`'s, are declared by
`turbo_physai.optimizations.options.CompileOptions`. The report tells how many graphs were compiled,
how often Dynamo broke off a graph and why, and how often it compiled again.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch._dynamo.utils import counters

from turbo_physai.engine.metrics import Metrics, metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from turbo_physai.optimizations.options import CompileOptions

logger = logging.getLogger("turbo_physai")


def compiled(original: Callable[..., Any], options: CompileOptions) -> Callable[..., Any]:
    """`original`, compiled at its first call.

    What it does in training and in evaluation, with and without gradients, is compiled apart, so
    that going from one to the other and back compiles nothing again. Where it cannot be compiled,
    it runs as it was from then on: a warning in the log and in the report says why. The call that
    fails to compile is run again from its start.

    Args:
        original: a function, or a method of a `torch.nn.Module`.
        options: the arguments of `torch.compile`.

    Raises:
        Exception: what `torch.compile` says of the options' values; nothing is compiled yet.
    """
    told, arguments = metrics(), attrs.asdict(options, recurse=False)
    variants = {"train": _Variant("train", _compile(original, "train", arguments), told)}
    name = f"{original.__module__}.{original.__qualname__}"
    failed = False

    @wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal failed
        # Within a larger graph this is a part of it, and is compiled with that.
        if failed or torch.compiler.is_compiling():
            return original(*args, **kwargs)
        state = _state(args)
        try:
            if state not in variants:
                variants[state] = _Variant(state, _compile(original, state, arguments), told)
            return variants[state](*args, **kwargs)
        except Exception as error:
            if not _is_of_compiler(error):
                raise
            result = original(*args, **kwargs)  # what this raises is the model's own error
            failed = True
            _tell_failure(told, name, error)
            return result

    return run


def _state(args: tuple[Any, ...]) -> str:
    module = args[0] if args and isinstance(args[0], torch.nn.Module) else None
    state = "eval" if module is not None and not module.training else "train"
    return state if torch.is_grad_enabled() else f"{state} without gradients"


def _compile(
    original: Callable[..., Any], state: str, arguments: dict[str, Any]
) -> Callable[..., Any]:
    # Dynamo keeps what it compiled with the code object, and limits how often a code object is
    # compiled, so each state gets one of its own.
    if isinstance(original, FunctionType):
        own = FunctionType(
            original.__code__.replace(co_name=f"{original.__name__} ({state})"),
            original.__globals__,
            original.__name__,
            original.__defaults__,
            original.__closure__,
        )
        own.__kwdefaults__ = copy.copy(original.__kwdefaults__)
        original = own
    made: Callable[..., Any] = torch.compile(original, **arguments)
    return made


@attrs.define
class _Variant:
    """What is compiled for one state of the model, and what is told of it.

    Dynamo counts for the whole process; what it counted more after a call belongs to that call.
    """

    state: str
    call: Callable[..., Any]
    told: Metrics
    graphs: int = 0
    recompiles: int = 0
    breaks: Counter[str] = attrs.field(factory=Counter)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        graphs, breaks = _graphs(), counters["graph_break"].copy()
        try:
            return self.call(*args, **kwargs)
        finally:
            more, new = _graphs() - graphs, counters["graph_break"] - breaks
            if more > 0 or new:
                self.recompiles += self.graphs > 0
                self.graphs += max(more, 0)
                self.breaks += new
                self._tell()

    def _tell(self) -> None:
        told: dict[str, Any] = {
            "graphs": self.graphs,
            "graph_breaks": sum(self.breaks.values()),
            "recompiles": self.recompiles,
        }
        if self.breaks:
            told["reasons"] = [reason.partition("\n")[0] for reason in self.breaks]
        self.told.set(**{self.state: told})


def _graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


def _is_of_compiler(error: BaseException) -> bool:
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))


def _tell_failure(told: Metrics, name: str, error: Exception) -> None:
    first_paragraph = str(error).strip().partition("\n\n")[0]
    reason = f"{type(error).__name__}: {' '.join(first_paragraph.split())}"
    text = f"{name} could not be compiled and runs as it was: {reason}"
    logger.warning("turbo_physai: %s", text)
    logger.debug("turbo_physai: %s", name, exc_info=error)
    told.warn(text)
    told.set(fallback=reason)
