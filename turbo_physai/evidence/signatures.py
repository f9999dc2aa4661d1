"""Whether one signature takes every call that another takes.

Signatures are `inspect.Signature` objects, whether they were read from source or from an object.
"""

from __future__ import annotations

import ast
import inspect
from inspect import Parameter, Signature
from typing import Any

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


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
    """Why a call that `original` takes may fail on `replacement`; None if none can.

    `method` says that the first parameter is the instance or class, which has no name for a caller.
    """
    theirs, ours = list(original.parameters.values()), list(replacement.parameters.values())
    any_position = any(p.kind is Parameter.VAR_POSITIONAL for p in ours)
    any_name = any(p.kind is Parameter.VAR_KEYWORD for p in ours)
    positional = [p for p in ours if p.kind in _POSITIONAL]
    used: set[str] = set()
    for i, want in enumerate(p for p in theirs if p.kind in _POSITIONAL):
        unnamed = want.kind is Parameter.POSITIONAL_ONLY or (method and i == 0)
        if i >= len(positional):
            if not any_position or not (unnamed or any_name):
                return f"takes no {want.name!r}"
            continue
        have = positional[i]
        used.add(have.name)
        if not unnamed and (have.name != want.name or have.kind is Parameter.POSITIONAL_ONLY):
            return f"calls {want.name!r} {have.name!r}"
        if want.default is not Parameter.empty and have.default is Parameter.empty:
            return f"has no default for {want.name!r}"
    for want in theirs:
        if want.kind is Parameter.VAR_POSITIONAL and not any_position:
            return f"takes no *{want.name}"
        if want.kind is Parameter.VAR_KEYWORD and not any_name:
            return f"takes no **{want.name}"
        if want.kind is Parameter.KEYWORD_ONLY:
            found = replacement.parameters.get(want.name)
            named = found is not None and found.kind in (_POSITIONAL[1], Parameter.KEYWORD_ONLY)
            if not (named or any_name):
                return f"takes no {want.name!r}"
            if named and found is not None:
                used.add(want.name)
                if want.default is not Parameter.empty and found.default is Parameter.empty:
                    return f"has no default for {want.name!r}"
    for have in ours:
        named = have.kind in (*_POSITIONAL, Parameter.KEYWORD_ONLY)
        if named and have.default is Parameter.empty and have.name not in used:
            return f"also needs {have.name!r}"
    return None
