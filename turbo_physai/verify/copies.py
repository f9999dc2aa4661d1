"""Copies of a call's arguments, with a graph of their own."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any, Final

import attrs

from turbo_physai.verify import libraries

_DEPTH: Final = 8

# Copying one starts collective operations, or fails.
_DISTRIBUTED: Final = ("torch.nn.parallel.", "torch.distributed.")


class NotComparableError(Exception):
    """A call that cannot be repeated on copies, and why."""


@attrs.define(eq=False)
class Copies:
    """Arguments of a call, copied.

    Attributes:
        args, kwargs: the copies.
        leaves: the leaf tensors behind those that need gradients, by name.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: dict[str, Any]

    @classmethod
    def of(
        cls, args: tuple[Any, ...], kwargs: Mapping[str, Any], named: Mapping[str, Any]
    ) -> Copies:
        """
        Args:
            named: the same arguments by their names.

        Raises:
            NotComparableError: one of them cannot be copied.
        """
        memo: dict[int, Any] = {}
        leaves: dict[str, Any] = {}
        for path, value in walk(named):
            if _is_distributed(value):
                raise NotComparableError(f"{path} is a {type(value).__qualname__}")
            if _is_context(value):
                memo[id(value)] = value
            elif is_tensor(value) and id(value) not in memo:
                memo[id(value)], leaf = _copied(value)
                if leaf.requires_grad:
                    leaves[path] = leaf
        try:
            made, keywords = copy.deepcopy((args, dict(kwargs)), memo)
        except Exception as error:
            raise NotComparableError(
                f"the arguments cannot be copied: {type(error).__name__}: {error}"
            ) from error
        return cls(made, keywords, leaves)


def is_tensor(value: Any) -> bool:
    torch = libraries.torch()
    return torch is not None and isinstance(value, torch.Tensor)


def _copied(tensor: Any) -> tuple[Any, Any]:
    """A copy, and the leaf that its gradient goes to."""
    torch: Any = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        made = copy.deepcopy(tensor.detach())
        return made, made
    with torch.enable_grad():
        leaf = tensor.detach().clone()
        vars(leaf).update(vars(tensor))
        if type(tensor) is torch.nn.Parameter:
            leaf = torch.nn.Parameter(leaf, tensor.requires_grad)
            vars(leaf).update(vars(tensor))
        elif tensor.requires_grad:
            leaf.requires_grad_()
            # Changing the argument in place is allowed where it was no leaf.
            return (leaf if tensor.is_leaf else leaf.clone()), leaf
    return leaf, leaf


def _is_context(value: Any) -> bool:
    """Whether it belongs to an autograd Function's node, of which there is one."""
    torch = libraries.torch()
    return torch is not None and isinstance(value, torch.autograd.function.FunctionCtx)


def _is_distributed(value: Any) -> bool:
    name = f"{type(value).__module__}."
    is_module = hasattr(value, "_parameters") and hasattr(value, "_modules")
    parallel = any(f"{base.__module__}.".startswith(_DISTRIBUTED) for base in type(value).__mro__)
    return name.startswith("torch._C._distributed_c10d.") or (is_module and parallel)


def walk(named: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Everything inside of named values, with its path: through containers, modules of torch and
    other objects; each object once."""
    seen: set[int] = set()
    for name, value in named.items():
        yield from _inside(name, value, _DEPTH, seen)


def _inside(path: str, value: Any, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
    yield path, value
    if is_tensor(value) or _is_context(value) or id(value) in seen or not depth:
        return
    seen.add(id(value))
    for key, held in _children(value):
        yield from _inside(f"{path}{key}", held, depth - 1, seen)


def _children(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", held) for key, held in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"[{i}]", held) for i, held in enumerate(value)]
    if isinstance(value, (type, ModuleType, FunctionType)):
        return []
    held = getattr(value, "__dict__", None)
    if type(held) is not dict:
        return []
    children = []
    for key, each in held.items():
        if key in ("_parameters", "_buffers", "_modules") and type(each) is dict:
            children += [(f".{name}", part) for name, part in each.items()]
        else:
            children.append((f".{key}", each))
    return children
