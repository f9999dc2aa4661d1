"""Makes a new object fit the slot of the old one: what was a staticmethod stays one, and so on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property, partialmethod, wraps
from types import CellType, FunctionType, MethodType
from typing import Any

from turbo_physai.engine.calls import Calls, compiling
from turbo_physai.engine.slot import Slot, TargetError
from turbo_physai.evidence import signatures


def inner(raw: Any) -> Any:
    """What a wrapper factory is given for a stored object: the function in a descriptor, if any."""
    return raw.__func__ if isinstance(raw, (staticmethod, classmethod)) else raw


def kind(raw: Any, *, in_class: bool) -> str:
    """The kind of a stored object, in the words of Python's documentation."""
    for type_ in (staticmethod, classmethod, property, cached_property):
        if isinstance(raw, type_):
            return type_.__name__
    if isinstance(raw, type):
        return "class"
    if callable(raw) or isinstance(raw, partialmethod):
        return "method" if in_class else "function"
    return "value"


def adapt(slot: Slot, original: Any, new: Any) -> Any:
    """`new` in the form in which the slot of the stored object `original` can hold it.

    Raises:
        TargetError: it is of a kind that cannot stand there, or takes not every call that the
            original takes.
    """
    in_class = slot.in_class or slot.is_inherited
    wanted, found = kind(original, in_class=in_class), kind(new, in_class=in_class)
    _refuse_kind(slot, original, wanted, new, found)
    if wanted == "property":
        return _property(original, new)
    if wanted == "cached_property":
        made = new if isinstance(new, cached_property) else cached_property(new)
        made.__set_name__(slot.owner, slot.name)
        return made
    if wanted in ("class", "value"):
        return new
    function = inner(new)
    _refuse_signature(original, function, method=wanted in ("method", "classmethod"))
    if slot.in_class:
        function = as_method(function, slot.owner, slot.name)
    elif slot.is_inherited and isinstance(original, FunctionType):
        return MethodType(function, slot.owner)  # an instance's own entry is not bound by itself
    return type(original)(function) if wanted in ("staticmethod", "classmethod") else function


def _refuse_kind(slot: Slot, original: Any, wanted: str, new: Any, found: str) -> None:
    if slot.in_class and inspect.ismemberdescriptor(original):
        raise TargetError(
            f"{slot.name!r} is an entry of __slots__, which holds each instance's value and cannot "
            "be replaced; declare a method or property of the class"
        )
    if slot.in_class and _is_type_slot(slot, original):
        raise TargetError(
            f"{slot.name!r} is a special method of a type written in C: changing it cannot be "
            "taken back; declare a function that calls it"
        )
    callables = ("function", "method", "staticmethod", "classmethod")
    accepted = {
        "class": ("class",),
        "property": ("property", "method"),
        "cached_property": ("cached_property", "method"),
        "staticmethod": ("staticmethod", "method"),
        "classmethod": ("classmethod", "method"),
        "method": ("method",),
        "function": callables,
        "value": (found,),
    }[wanted]
    if found not in accepted:
        raise TargetError(
            f"the target is a {wanted}, the replacement a {found}; accepted: {', '.join(accepted)}"
        )
    if wanted == "method" and not hasattr(new, "__get__") and hasattr(original, "__get__"):
        raise TargetError(
            f"the target is a method, the replacement a {type(new).__qualname__}, which is not "
            "bound to an instance; accepted: a function that takes `self` first"
        )


def _is_type_slot(slot: Slot, original: Any) -> bool:
    special = slot.name.startswith("__") and slot.name.endswith("__")
    in_c = inspect.ismethoddescriptor(original) and type(original).__module__ == "builtins"
    return special and in_c and not isinstance(original, (staticmethod, classmethod, FunctionType))


def _refuse_signature(original: Any, new: Any, *, method: bool) -> None:
    theirs, ours = signatures.contract(inner(original)), signatures.of_object(new)
    if theirs is None or ours is None:
        return
    reason = signatures.mismatch(theirs, ours, method=method)
    if reason is not None:
        raise TargetError(
            f"the replacement {reason}. Its signature is {ours}, that of the original {theirs}"
        )


def _property(original: property, new: Any) -> property:
    if not isinstance(new, property):
        return original.getter(new)
    # Accessors that the new property lacks keep working.
    return type(original)(
        new.fget or original.fget,
        new.fset or original.fset,
        new.fdel or original.fdel,
        new.__doc__ or original.__doc__,
    )


def as_method(function: Any, cls: type, name: str) -> Any:
    """`function` as the method `name` of `cls`.

    Bound methods are pickled by their name, and `super()` reads the class from a cell of the
    function, so a function that has another name, or comes from another class, is copied with both
    put right. Any other callable, and a function that already fits, is returned as it is.
    """
    if not isinstance(function, FunctionType):
        return function
    free = function.__code__.co_freevars
    if function.__name__ == name and "__class__" not in free:
        return function
    cells = zip(free, function.__closure__ or (), strict=True)
    closure = tuple(CellType(cls) if n == "__class__" else cell for n, cell in cells)
    copy = FunctionType(
        function.__code__, function.__globals__, name, function.__defaults__, closure or None
    )
    copy.__dict__.update(vars(function))
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = dict(function.__annotations__)
    copy.__doc__ = function.__doc__
    copy.__module__, copy.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
    return copy


def name_like(new: Any, original: Any) -> Any:
    """Gives a function or class that a factory made inside itself the name of the original, so that
    it can be pickled by that name, and its documentation."""
    function, source = inner(new), inner(original)
    if not isinstance(function, (FunctionType, type)) or function is source:
        return new
    if type(function) is type(source) and "<locals>" in function.__qualname__:
        for attribute in ("__module__", "__name__", "__qualname__"):
            setattr(function, attribute, getattr(source, attribute))
        if function.__doc__ is None:
            function.__doc__ = source.__doc__
    _unlink(function, source)
    return new


def _unlink(function: Any, source: Any) -> None:
    """Removes what `functools.wraps` has set on a wrapper of `source` and compilers follow.

    `torch.jit.script`, like `inspect.getsource`, reads the source behind `__wrapped__`: it would
    compile the original and pass the wrapper by. The copied marks of other compilers do the same.
    """
    each = function
    while isinstance(each, FunctionType) and "__wrapped__" in vars(each):
        wrapped = vars(each)["__wrapped__"]
        if wrapped is source:
            for key in list(vars(each)):
                is_mark = key.startswith("_torchdynamo_") or key == "get_compiler_config"
                if is_mark or key == "__wrapped__":
                    delattr(each, key)
            return
        each = wrapped


def show_signature(new: Any, original: Any) -> None:
    """Has `inspect.signature` show the original's signature for a wrapper that takes any arguments
    and has the original's name. Called last: the wrapper's own signature is checked before."""
    function, source = inner(new), inner(original)
    function = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(function, FunctionType) or function is source:
        return
    is_named_like = function.__qualname__ == getattr(source, "__qualname__", None)
    shown = signatures.shown(source)
    if is_named_like and shown is not None and signatures.is_open(function):
        function.__dict__.setdefault("__signature__", shown)


def choose(condition: Callable[..., Any], new: Any, original: Any, name: str, calls: Calls) -> Any:
    """A function that runs `new` where `condition` says True of the call's arguments, and
    `original` where it says False; `calls` counts them.

    Only the choice is made here: what the chosen one raises is the caller's, and is never answered
    by running the other one.
    """
    run_new, run_original = inner(new), inner(original)
    if not callable(run_original) or isinstance(run_original, type):
        raise TargetError(
            f"a runtime_condition needs a function or method as its target, found "
            f"{run_original!r}; declare one of its methods instead"
        )
    is_compiling, note_compiled = compiling(calls.note_compiled)

    @wraps(run_original)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        answer = condition(*args, **kwargs)
        if answer is True:
            if is_compiling():
                note_compiled()
            else:
                calls.replacement += 1
            return run_new(*args, **kwargs)
        if answer is False:
            if is_compiling():
                note_compiled()
            else:
                calls.to_original(run_original, args, kwargs)
            return run_original(*args, **kwargs)
        raise TypeError(f"the runtime_condition {name} returns True or False, found {answer!r}")

    _unlink(chosen, run_original)
    return chosen
