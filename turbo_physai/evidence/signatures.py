"""Whether one signature takes every call that another takes.

Signatures are `inspect.Signature` objects, whether they were read from source or from an object.
"""

from __future__ import annotations

import ast
import inspect
from inspect import Parameter, Signature
from typing import Any

import attrs

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def of_definition(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Signature:
    """The signature of a function definition; a default stands as an ellipsis."""
    args = node.args
    plain = [*args.posonlyargs, *args.args]
    first_default = len(plain) - len(args.defaults)
    parameters = []
    for i, arg in enumerate(plain):
        kind = Parameter.POSITIONAL_ONLY if i < len(args.posonlyargs) else _POSITIONAL[1]
        default = ... if i >= first_default else Parameter.empty
        parameters.append(Parameter(arg.arg, kind, default=default))
    if args.vararg:
        parameters.append(Parameter(args.vararg.arg, Parameter.VAR_POSITIONAL))
    for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        default = Parameter.empty if value is None else ...
        parameters.append(Parameter(arg.arg, Parameter.KEYWORD_ONLY, default=default))
    if args.kwarg:
        parameters.append(Parameter(args.kwarg.arg, Parameter.VAR_KEYWORD))
    return Signature(parameters)


def of_object(obj: Any) -> Signature | None:
    """The signature of what would really be called, not of what it wraps; None if it shows none."""
    try:
        return inspect.signature(obj, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def shown(obj: Any) -> Signature | None:
    """The signature that `inspect.signature` shows, looking through decorators; None if none."""
    try:
        return inspect.signature(obj)
    except (TypeError, ValueError):
        return None


def is_open(obj: Any) -> bool:
    """Whether it takes ``*args`` or ``**kwargs``, which hide what it is meant to be called with."""
    own = of_object(obj)
    return own is not None and any(
        p.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) for p in own.parameters.values()
    )


def contract(obj: Any) -> Signature | None:
    """The calls that an original is meant to take: where a decorator hides them behind ``*args``
    and ``**kwargs``, those of what it decorates."""
    shown = of_object(obj)
    kinds = {p.kind for p in shown.parameters.values()} if shown is not None else set()
    if {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD} <= kinds and hasattr(obj, "__wrapped__"):
        return contract(obj.__wrapped__)
    return shown


def mismatch(original: Signature, replacement: Signature, *, method: bool = False) -> str | None:
    """Why a call that `original` takes may fail on `replacement`, and what to change in that; None
    if none can.

    `method` says that the first parameter is the instance or class, which has no name for a caller.
    """
    theirs, ours = _Parameters.of(original), _Parameters.of(replacement)
    pairs = [_pair(want, i, theirs, ours, method=method) for i, want in enumerate(theirs.all)]
    matched = {have.name for _, have in pairs if have is not None}
    return next((reason for reason, _ in pairs if reason), None) or _extra(ours, matched)


@attrs.frozen
class _Parameters:
    """The parameters of a signature, by how they take arguments."""

    all: tuple[Parameter, ...]
    positional: tuple[Parameter, ...]
    named: dict[str, Parameter]
    args: bool
    kwargs: bool

    @classmethod
    def of(cls, signature: Signature) -> _Parameters:
        all_ = tuple(signature.parameters.values())
        kinds = {p.kind for p in all_}
        return cls(
            all_,
            tuple(p for p in all_ if p.kind in _POSITIONAL),
            {p.name: p for p in all_ if p.kind in _NAMED},
            Parameter.VAR_POSITIONAL in kinds,
            Parameter.VAR_KEYWORD in kinds,
        )


_Pair = tuple[str | None, Parameter | None]  # what is wrong, and the parameter that was compared


def _pair(
    want: Parameter, index: int, theirs: _Parameters, ours: _Parameters, *, method: bool
) -> _Pair:
    """Compares a parameter of the original with the one that takes its argument."""
    if want.kind is Parameter.VAR_POSITIONAL:
        return (None if ours.args else f"takes no `*{want.name}`. Add it"), None
    if want.kind is Parameter.VAR_KEYWORD:
        return (None if ours.kwargs else f"takes no `**{want.name}`. Add it"), None
    if want.kind is Parameter.KEYWORD_ONLY:
        return _keyword(want, theirs, ours)
    has_name = want.kind is not Parameter.POSITIONAL_ONLY and not (method and index == 0)
    return _positional(want, index, ours, has_name=has_name)


def _keyword(want: Parameter, theirs: _Parameters, ours: _Parameters) -> _Pair:
    have = ours.named.get(want.name)
    if have is None:
        return (None if ours.kwargs else _lacks(want)), None
    by_position = ours.positional if theirs.args else ours.positional[: len(theirs.positional)]
    if have in by_position:
        return (
            f"takes `{want.name}` by position, where callers pass another argument. "
            "Make it keyword-only"
        ), have
    return _required(want, have), have


def _positional(want: Parameter, index: int, ours: _Parameters, *, has_name: bool) -> _Pair:
    if index >= len(ours.positional):
        # What comes by position goes to *args, and what comes by name to **kwargs.
        is_taken = ours.args and (not has_name or (ours.kwargs and want.name not in ours.named))
        return (None if is_taken else _lacks(want)), None
    have = ours.positional[index]
    if has_name and have.name != want.name:
        return (
            f"names parameter {index + 1} `{have.name}`; callers may pass it as `{want.name}=`. "
            f"Rename it to `{want.name}`"
        ), have
    if has_name and have.kind is Parameter.POSITIONAL_ONLY:
        return (
            f"takes `{want.name}` by position only; callers may pass it as `{want.name}=`. "
            "Remove the `/` after it"
        ), have
    return _required(want, have), have


def _lacks(want: Parameter) -> str:
    return f"has no parameter `{want.name}`, which callers may pass. Add it"


def _required(want: Parameter, have: Parameter) -> str | None:
    if want.default is Parameter.empty or have.default is not Parameter.empty:
        return None
    return f"requires `{have.name}`, which is optional in the original. Give it a default"


def _extra(ours: _Parameters, matched: set[str]) -> str | None:
    for have in ours.all:
        is_required = have.kind in (*_POSITIONAL, *_NAMED) and have.default is Parameter.empty
        if is_required and have.name not in matched:
            return f"requires `{have.name}`, which the original does not take. Give it a default"
    return None
