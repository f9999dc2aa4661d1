"""Finds the definition of an object in a module's syntax tree, by its qualified name."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from turbo_physai.evidence.quiet import parse

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_ACCESSORS: Final = ("getter", "setter", "deleter")


class Definition(NamedTuple):
    """A class or function definition.

    Attributes:
        nodes: its node; for a property, one node per accessor.
        segments: the source lines of each node, decorators included.
        kind: ``class``, ``function``, ``method``, ``staticmethod``, ``classmethod``, ``property``
            or ``cached_property``.
        line: its first line, counted from 1.
    """

    nodes: tuple[FunctionNode | ast.ClassDef, ...]
    segments: tuple[str, ...]
    kind: str
    line: int

    @property
    def is_decorated(self) -> bool:
        return any(node.decorator_list for node in self.nodes)


class Reexport(NamedTuple):
    """The name was imported: its definition is the object `name` in `module`."""

    module: str
    name: str


class Unknown(NamedTuple):
    """The source does not tell; `reason` says why not.

    `is_located` is False where the module that holds the definition was not found yet, so that
    there is no source to read.
    """

    reason: str
    is_located: bool = True


class Missing(NamedTuple):
    """There is no such name; `reason` says where."""

    reason: str


Found = Definition | Reexport | Unknown | Missing


class _Binding(NamedTuple):
    """A statement that gives a name a value, and whether it is certain to run."""

    node: ast.stmt | ast.alias
    certain: bool
    origin: ast.ImportFrom | None = None


def find(source: str, names: Sequence[str], *, module: str, is_package: bool) -> Found:
    """What the source of `module` says about the object called `names` in it.

    Raises:
        SyntaxError: it is no Python source of this version.
    """
    scope: ast.Module | ast.ClassDef = _parse(source, module)
    for depth, name in enumerate(names):
        found = _in_scope(scope, name, module, is_package)
        last = depth == len(names) - 1
        if isinstance(found, (Unknown, Missing, Reexport)):
            if isinstance(found, Reexport) and not last:
                return Unknown(f"{name} is imported from {found.module}")
            return found
        if last:
            return _definition(found, source, in_class=isinstance(scope, ast.ClassDef))
        if not isinstance(found[0], ast.ClassDef):
            return Unknown(f"{name} is a function; only classes and modules have members in source")
        scope = found[0]
    raise AssertionError("names is not empty")


@lru_cache(maxsize=16)  # the members of a Group tend to lie in one module
def _parse(source: str, module: str) -> ast.Module:
    return parse(source, module)


def _in_scope(
    scope: ast.Module | ast.ClassDef, name: str, module: str, is_package: bool
) -> tuple[FunctionNode | ast.ClassDef, ...] | Reexport | Unknown | Missing:
    bindings = list(_bindings(scope.body, name, certain=True))
    if not bindings:
        return _not_here(scope, name)
    last = bindings[-1]
    if not all(b.certain for b in _since_certain(bindings)):
        return Unknown(f"{name} is defined conditionally (if, try or a loop)")
    if isinstance(last.node, ast.alias):
        return _reexport(last, module, is_package)
    if isinstance(last.node, ast.ClassDef):
        return (last.node,)
    if isinstance(last.node, FunctionNode):
        return _with_accessors(name, [b.node for b in bindings])
    return Unknown(f"{name} is assigned in line {last.node.lineno}, not defined by class or def")


def _since_certain(bindings: list[_Binding]) -> list[_Binding]:
    """The last binding that is certain to run, and those after it: one of them applies."""
    certain = [i for i, binding in enumerate(bindings) if binding.certain]
    return bindings[certain[-1] :] if certain else bindings


def _not_here(scope: ast.Module | ast.ClassDef, name: str) -> Unknown | Missing:
    if isinstance(scope, ast.ClassDef):
        # Registries decorate classes and leave their methods alone, so what a decorated class does
        # define is taken for what it has; what it lacks, the decorator may add.
        if scope.decorator_list:
            return Unknown(f"{name} may come from a decorator of {scope.name}")
        if scope.bases or scope.keywords:
            return Unknown(f"{name} may be inherited by {scope.name}")
        return Missing(f"the class {scope.name} has no {name!r}")
    if any(
        isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(scope)
    ):
        return Unknown(f"{name} may come from a star import")
    if any(isinstance(node, ast.Name) and node.id == "__path__" for node in ast.walk(scope)):
        reason = f"{name} may be a submodule: the package computes its __path__ when it runs"
        return Unknown(reason, is_located=False)
    dynamic = any(b for n in ("__getattr__", "globals") for b in _uses(scope, n))
    if dynamic:
        return Unknown(f"{name} may be defined dynamically (__getattr__ or globals())")
    return Missing(f"the module has no {name!r}")


def _uses(scope: ast.Module, name: str) -> Iterator[ast.AST]:
    for node in ast.walk(scope):
        if isinstance(node, FunctionNode) and node.name == name:
            yield node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


def _bindings(body: Sequence[ast.stmt], name: str, *, certain: bool) -> Iterator[_Binding]:
    """Every statement of a scope that binds `name`, in order."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if node.name == name:
                yield _Binding(node, certain)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if (alias.asname or alias.name.partition(".")[0]) == name:
                    origin = node if isinstance(node, ast.ImportFrom) else None
                    yield _Binding(alias if origin else node, certain, origin)
        elif isinstance(node, ast.If):
            truth = _truth(node.test)
            if truth is not False:
                yield from _bindings(node.body, name, certain=certain and truth is True)
            if truth is not True:
                yield from _bindings(node.orelse, name, certain=certain and truth is False)
        elif isinstance(node, ast.With):
            yield from _bindings(node.body, name, certain=certain)
        elif isinstance(node, (ast.For, ast.While)):
            yield from _bindings([*node.body, *node.orelse], name, certain=False)
        elif isinstance(node, ast.Try):
            blocks = [node.body, *(h.body for h in node.handlers), node.orelse]
            for block in blocks:
                yield from _bindings(block, name, certain=False)
            yield from _bindings(node.finalbody, name, certain=certain)
        elif any(isinstance(n, ast.Name) and n.id == name for n in _targets(node)):
            yield _Binding(node, certain)


def _truth(test: ast.expr) -> bool | None:
    """What a condition is known to be when a module is imported."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    if name == "TYPE_CHECKING":
        return False
    is_main = isinstance(test, ast.Compare) and getattr(test.left, "id", None) == "__name__"
    return False if is_main else None


def _targets(node: ast.stmt) -> Iterator[ast.AST]:
    roots: list[ast.expr] = []
    if isinstance(node, (ast.Assign, ast.Delete)):
        roots = node.targets
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.AnnAssign) and node.value):
        roots = [node.target]
    for root in roots:
        yield from ast.walk(root)


def _reexport(binding: _Binding, module: str, is_package: bool) -> Reexport | Unknown:
    node = binding.origin
    assert node is not None
    assert isinstance(binding.node, ast.alias)
    if not node.level:
        return Reexport(node.module or "", binding.node.name)
    parts = module.split(".")
    depth = len(parts) - node.level + (1 if is_package else 0)
    base = parts[: max(depth, 0)]
    if not base:
        return Unknown(f"{binding.node.name} is imported from beyond the top package")
    return Reexport(".".join(filter(None, (*base, node.module))), binding.node.name)


def _with_accessors(name: str, nodes: Sequence[ast.AST]) -> tuple[FunctionNode, ...]:
    """The last function of that name, and before it those that it adds accessors to."""
    result: list[FunctionNode] = []
    for node in reversed(nodes):
        if not isinstance(node, FunctionNode):
            break
        result.insert(0, node)
        adds = any(
            isinstance(d, ast.Attribute)
            and d.attr in _ACCESSORS
            and isinstance(d.value, ast.Name)
            and d.value.id == name
            for d in node.decorator_list
        )
        if not adds:
            break
    return tuple(result)


def _definition(
    nodes: tuple[FunctionNode | ast.ClassDef, ...], source: str, *, in_class: bool
) -> Definition:
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    firsts = [min([n.lineno, *(d.lineno for d in n.decorator_list)]) for n in nodes]
    segments = tuple(
        "\n".join(lines[first - 1 : node.end_lineno])
        for first, node in zip(firsts, nodes, strict=True)
    )
    return Definition(nodes, segments, _kind(nodes[0], in_class=in_class), firsts[0])


def _kind(node: FunctionNode | ast.ClassDef, *, in_class: bool) -> str:
    if isinstance(node, ast.ClassDef):
        return "class"
    if not in_class:
        return "function"
    if node.name in ("__new__",):
        return "staticmethod"
    if node.name in ("__init_subclass__", "__class_getitem__"):
        return "classmethod"
    for decorator in node.decorator_list:
        name = getattr(decorator, "attr", getattr(decorator, "id", None))
        if name in ("staticmethod", "classmethod", "property", "cached_property"):
            return str(name)
    return "method"
