"""Operators as torch sees them: registration, dispatch, autograd, fake tensors.

The only module that knows `torch.library`. An operator is described by the NamedTuple of its
inputs; its backends are the modules `_cpu`, `_triton` and `_torch` of its package, each with

    forward(inputs) -> Tensor                                 (or a tuple of Tensors)
    backward(grad_out, inputs, wanted) -> tuple[Tensor | None, ...]

where `wanted` tells for each differentiable input whether its gradient is needed.
"""

from __future__ import annotations

import importlib
import typing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils import flop_counter

from . import _backends, _validate

Gradients = tuple[Tensor | None, ...]
_NAMESPACE = "turbo_physai"
_FRAGMENT: Any = torch.library.Library(_NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
_SCHEMA_TYPES: dict[Any, str] = {
    Tensor: "Tensor",
    Tensor | None: "Tensor?",
    bool: "bool",
    int: "int",
    float: "float",
    list[int]: "int[]",
    list[float]: "float[]",
}


class Inputs(Protocol):
    """What the NamedTuple of an operator's inputs has beside its fields, which are annotated with
    types of `_SCHEMA_TYPES`. The first field is a tensor and decides the device."""

    def check(self) -> None:
        """Raise unless dtypes, shapes and devices go together. Reads no tensor's numbers."""

    def result(self) -> Any:
        """The result, or the results, with numbers yet to be written."""

    def trivial_result(self) -> Any:
        """The result where there is nothing to compute, else None; gradients are then zero."""

    def __iter__(self) -> Any: ...


class Derived(NamedTuple):
    """A gradient that PyTorch's operators compute from others."""

    needs: tuple[str, ...]
    """Names of the inputs whose gradients it is computed from."""
    compute: Callable[[Tensor, Any, dict[str, Tensor]], Tensor]
    """From the gradient of the result, the inputs, and the gradients by name."""


class Operator:
    """An operator `torch.ops.turbo_physai.NAME`, and `NAME_backward` where it has gradients.

    Args:
        name: the operator's name.
        inputs: the NamedTuple of its inputs (see `Inputs`), defined in the operator's package.
        gradients: the inputs whose gradients the backends compute.
        derived: further gradients, by the input's name.
        results: how many tensors it returns.
        backends: the backends that it has.
        check_values: raises where numbers in CPU tensors cannot be used; not called while tracing.
        limit: why no fused kernel takes some inputs, None when they do.
        flops: floating-point operations of the forward pass, from the shapes of the inputs.
        gradient_format: the memory format of gradients.
    """

    all: typing.ClassVar[dict[str, Operator]] = {}

    def __init__(
        self,
        name: str,
        inputs: type[Any],
        *,
        gradients: tuple[str, ...] = (),
        derived: dict[str, Derived] | None = None,
        results: int = 1,
        backends: tuple[str, ...] = ("cpu", "triton", "torch"),
        check_values: Callable[[Any], None] | None = None,
        limit: Callable[[Any], str | None] | None = None,
        flops: Callable[..., int] | None = None,
        gradient_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        self.name = name
        self.backends = backends
        self.inputs = inputs
        self._kinds = {
            field: _SCHEMA_TYPES[kind] for field, kind in typing.get_type_hints(inputs).items()
        }
        self.differentiable = gradients
        self._derived = derived or {}
        self._check_values = check_values
        self._limit = limit
        self._modules: dict[str, Any] = {}
        self._is_tensor = [kind.startswith("Tensor") for kind in self._kinds.values()]
        self._gradient_format = gradient_format
        fields = ", ".join(f"{kind} {field}" for field, kind in self._kinds.items())
        returned = ", ".join(["Tensor"] * results)
        forward = torch.library.custom_op(
            f"{_NAMESPACE}::{name}",
            self._run,
            mutates_args=(),
            schema=f"({fields}) -> ({returned})",
        )
        forward.register_fake(self._fake)
        self.overload = getattr(torch.ops.turbo_physai, name).default
        if gradients:
            returned = ", ".join(["Tensor"] * len(gradients))
            backward = torch.library.custom_op(
                f"{_NAMESPACE}::{name}_backward",
                self._run_backward,
                mutates_args=(),
                schema=f"(Tensor grad_out, {fields}, bool[] wanted) -> ({returned})",
            )
            backward.register_fake(self._fake_backward)
            self.backward_overload = getattr(torch.ops.turbo_physai, f"{name}_backward").default
            forward.register_autograd(self._differentiate, setup_context=self._save)
            backward.register_autograd(self._refuse_second_derivative)
        if flops is not None:
            _count_flops(name, flops, backward=bool(gradients))
        Operator.all[name] = self

    def __call__(self, *arguments: Any) -> Any:
        """The operator, as autograd and compilers see it; arguments in the order of the inputs."""
        self._check_arguments(arguments)
        return self.overload(*arguments)

    def backward(
        self, grad_out: Tensor, *arguments: Any, wanted: Sequence[bool] | None = None
    ) -> tuple[Any, ...]:
        """The gradients that the backends compute.

        Args:
            wanted: which of them (all); the others are None.
        """
        self._check_arguments((grad_out, *arguments), {"grad_out": "Tensor", **self._kinds})
        needed = [True] * len(self.differentiable) if wanted is None else list(wanted)
        grads = _as_tuple(self.backward_overload(grad_out, *arguments, needed))
        return tuple(grad if one else None for grad, one in zip(grads, needed, strict=True))

    def backend(self, inputs: Any, *more: Tensor) -> Any:
        """The module that computes for these inputs."""
        tensors = [*(t for t in inputs if isinstance(t, Tensor) and t.is_floating_point()), *more]
        limit = None if self._limit is None else self._limit(inputs)
        name = _backends.choose(self.name, self.backends, tensors, limit)
        if name not in self._modules:
            self._modules[name] = importlib.import_module(f"{self.inputs.__module__}._{name}")
        return self._modules[name]

    def _check_arguments(
        self, arguments: Sequence[Any], kinds: dict[str, str] | None = None
    ) -> None:
        for (name, kind), argument in zip((kinds or self._kinds).items(), arguments, strict=True):
            _validate.kind(name, argument, kind)
        if not torch.compiler.is_compiling():
            _refuse_transforms(self.name, arguments)

    def _run(self, *arguments: Any) -> Any:
        inputs = self.inputs(*arguments)
        inputs.check()
        if self._check_values is not None:
            self._check_values(inputs)
        trivial = inputs.trivial_result()
        return self.backend(inputs).forward(inputs) if trivial is None else trivial

    def _run_backward(self, grad_out: Tensor, *arguments: Any) -> Any:
        *values, wanted = arguments
        inputs = self.inputs(*values)
        inputs.check()
        _validate.gradient(grad_out, inputs.result())
        if self._check_values is not None:
            self._check_values(inputs)
        if not any(wanted) or inputs.trivial_result() is not None:
            grads = self._of_gradients(inputs, wanted, torch.zeros_like)
        else:
            backend = self.backend(inputs, grad_out)
            found = backend.backward(grad_out, inputs, tuple(wanted))
            pairs = zip(found, wanted, strict=True)
            grads = [grad if needed else None for grad, needed in pairs]
        return _none_as_empty(grads, grad_out)

    def _fake(self, *arguments: Any) -> Any:
        inputs = self.inputs(*arguments)
        inputs.check()
        return inputs.result()

    def _fake_backward(self, grad_out: Tensor, *arguments: Any) -> Any:
        *values, wanted = arguments
        inputs = self.inputs(*values)
        inputs.check()
        _validate.gradient(grad_out, inputs.result())
        return _none_as_empty(self._of_gradients(inputs, wanted, torch.empty_like), grad_out)

    def _of_gradients(
        self, inputs: Any, wanted: Sequence[bool], make: Callable[..., Tensor]
    ) -> list[Tensor | None]:
        tensors = [getattr(inputs, name) for name in self.differentiable]
        return [
            make(tensor, memory_format=self._gradient_format)
            if needed and tensor is not None
            else None
            for tensor, needed in zip(tensors, wanted, strict=True)
        ]

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        flags = list(zip(inputs, self._is_tensor, strict=True))
        ctx.save_for_backward(*(value for value, is_tensor in flags if is_tensor))
        ctx.numbers = [value for value, is_tensor in flags if not is_tensor]

    def _differentiate(self, ctx: Any, grad_out: Tensor) -> Gradients:
        tensors, numbers = iter(ctx.saved_tensors), iter(ctx.numbers)
        inputs = self.inputs(
            *(next(tensors if is_tensor else numbers) for is_tensor in self._is_tensor)
        )
        needed = dict(zip(self._kinds, ctx.needs_input_grad, strict=True))
        derived = {name: one for name, one in self._derived.items() if needed[name]}
        for one in derived.values():
            needed.update(dict.fromkeys(one.needs, True))
        wanted = [needed[name] for name in self.differentiable]
        grads: dict[str, Tensor] = {}
        if any(wanted):
            found = _as_tuple(self.backward_overload(grad_out, *inputs, wanted))
            grads = {
                name: grad
                for name, grad, is_wanted in zip(self.differentiable, found, wanted, strict=True)
                if is_wanted
            }
        for name, one in derived.items():
            grads[name] = one.compute(grad_out, inputs, grads)
        return tuple(grads.get(name) for name in self._kinds)

    def _refuse_second_derivative(self, ctx: Any, *grads: Tensor) -> None:
        raise RuntimeError(
            f"{self.name} has a first derivative only; a second one was asked for "
            "(create_graph=True followed by another backward)"
        )


def register_draw(
    name: str, schema: str, draw: Callable[..., Any], fake: Callable[..., Any]
) -> Callable[..., Any]:
    """Register an operator that draws random numbers on the host, anew at every call: compilers
    neither merge two calls nor repeat one, and an exported program draws when it runs."""
    # custom_op takes tags since torch 2.5 only.
    _FRAGMENT.define(name + schema, tags=(torch.Tag.nondeterministic_seeded,))
    _FRAGMENT.impl(name, draw, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{_NAMESPACE}::{name}", fake)
    overload: Callable[..., Any] = getattr(torch.ops.turbo_physai, name).default
    return overload


def _none_as_empty(grads: Sequence[Tensor | None], like: Tensor) -> Any:
    """What a registered operator may return: a tensor also where there is no gradient, and a single
    one by itself."""
    found = tuple(like.new_empty(0) if grad is None else grad for grad in grads)
    return found[0] if len(found) == 1 else found


def _as_tuple(result: Any) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def _refuse_transforms(name: str, arguments: Sequence[Any]) -> None:
    """Refuse what would give zeros (forward mode), or an error about torch's own classes."""
    if forward_ad._current_level < 0 and torch._C._functorch.peek_interpreter_stack() is None:
        return
    tensors = [value for value in arguments if isinstance(value, Tensor)]
    if forward_ad._current_level >= 0 and any(
        forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]
        for tensor in tensors
    ):
        raise RuntimeError(
            f"{name} has no forward-mode derivative (torch.func.jvp, jacfwd, forward_ad); "
            "use reverse mode: backward() or torch.autograd.grad"
        )
    if any(map(torch._C._functorch.is_gradtrackingtensor, tensors)):
        raise RuntimeError(
            f"{name} cannot be differentiated by torch.func (grad, vjp, jacrev, hessian); "
            "use backward() or torch.autograd.grad"
        )


def _count_flops(name: str, flops: Callable[..., int], backward: bool) -> None:
    """For `FlopCounterMode`. Backward, each sample is read again and added to once."""
    packet = getattr(torch.ops.turbo_physai, name)
    flop_counter.register_flop_formula(packet)(lambda *shapes, **_: flops(*shapes))
    if backward:
        packet = getattr(torch.ops.turbo_physai, f"{name}_backward")
        flop_counter.register_flop_formula(packet)(
            lambda grad_out, *shapes, **_: 2 * flops(*shapes[:-1])
        )
