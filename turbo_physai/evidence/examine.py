"""The checks of one member, made from source: nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial
from importlib.machinery import ModuleSpec
from inspect import Signature
from typing import NamedTuple

from turbo_physai.config import Trust
from turbo_physai.declarations import Replacement
from turbo_physai.declarations.names import ObjectPath
from turbo_physai.evidence import definitions, hashes, locate, signatures
from turbo_physai.evidence.check import HASHES, Check
from turbo_physai.evidence.definitions import Definition, Missing, Reexport, Unknown

_FOLLOWED = 8  # re-exports in a row; more is a circle


class Source(NamedTuple):
    """What the source says about one object path.

    Attributes:
        found: its definition, or why there is none to show.
        module: the module whose source was read; None if none was found.
        file: its file.
        name: the object's own dotted name, where it was defined.
    """

    found: Definition | Unknown | Missing
    module: ModuleSpec | None = None
    file: str | None = None
    name: str = ""

    @property
    def place(self) -> str:
        line = f":{self.found.line}" if isinstance(self.found, Definition) else ""
        return f"{self.file}{line}"


def read(path: ObjectPath, known: ModuleSpec | None = None) -> Source:
    """Finds the definition of the object at `path`, through re-exports.

    `known` is the spec of the module that is being imported: what is true is what is really loaded.
    """
    for _ in range(_FOLLOWED):
        holder = _holder(path, known)
        if holder is None:
            return Source(Unknown(_not_found(path), is_located=False))
        name, spec = holder
        kind = locate.kind(spec)
        if kind == "namespace":
            return Source(
                Missing(f"{spec.name} is a namespace package, which cannot hold a target"), spec
            )
        text = locate.source(spec)
        if text is None:
            return Source(Unknown(f"{spec.name} has no source"), spec, spec.origin)
        try:
            found = definitions.find(
                text,
                path.names_in(name),
                module=spec.name,
                is_package=spec.submodule_search_locations is not None,
            )
        except SyntaxError as error:
            return Source(Unknown(f"its source does not parse: {error}"), spec, spec.origin)
        if not isinstance(found, Reexport):
            own_name = ".".join((spec.name, *path.names_in(name)))
            return Source(found, spec, spec.origin, own_name)
        if locate.locate(f"{found.module}.{found.name}") is not None:
            return Source(Unknown(f"{path.dotted} is a module"), spec, spec.origin)
        path, known = ObjectPath(f"{found.module}:{found.name}"), None
    return Source(Unknown(f"{path.dotted} is imported in a circle"), spec, spec.origin)


def _holder(path: ObjectPath, known: ModuleSpec | None) -> tuple[str, ModuleSpec] | None:
    """The module part of `path`, its longest prefix that is a module, and the spec of that module,
    which has another name where one module answers for another."""
    for name in path.modules:
        if known is not None and known.name == name:
            return name, known
        spec = locate.locate(name)
        if spec is not None:
            return name, spec
    return None


def _not_found(path: ObjectPath) -> str:
    """Which part of a path has to be a module and was not found."""
    where = path.modules[0] if ":" in path else path.modules[-1]
    return f"no module {where!r} was found without importing it"


def member(declared: Replacement, trust: Trust, known: ModuleSpec | None = None) -> Iterator[Check]:
    """Every check of one Replacement that its source allows."""
    source = read(declared.target, known)
    yield _exists("target", declared.target, source)
    for alias in declared.aliases:
        yield _exists("target", alias, read(alias, known))
    yield trusted(declared.target, source, trust)
    replacement = read(declared.replacement)
    yield _exists("replacement", declared.replacement, replacement)
    if declared.runtime_condition is not None:
        yield _condition(declared.runtime_condition)
    if isinstance(source.found, Definition):
        yield from _names_itself(declared.target, source.found)
        # What a factory returns is checked when there is something to wrap.
        if declared.kind == "replace" and isinstance(replacement.found, Definition):
            yield _kinds(declared.target, source.found.kind, replacement.found.kind)
            yield _signatures(declared.target, source.found, replacement.found)


def confirmed(declared: Replacement, trust: Trust) -> Iterator[Check]:
    """The checks that the source left open, answered now that target and replacement are there:
    both exist, and a stated hash that could still not be compared has failed."""
    for check in member(declared, trust):
        if check.name in HASHES and check.outcome == "unknown":
            yield _not_compared(check.name, check.subject, check.expected, check.reason)
        elif check.leaves_open:
            yield check._replace(outcome="pass", actual="found when it was imported")
        else:
            yield check


def _exists(name: str, path: str, source: Source) -> Check:
    found = source.found
    if isinstance(found, Definition):
        return Check(name, "pass", path, actual=f"{found.kind} at {source.place}")
    if isinstance(found, Missing):
        where = f" ({source.file})" if source.file else ""
        return Check(name, "fail", path, reason=found.reason + where)
    return Check(name, "unknown", path, reason=found.reason)


def _condition(path: ObjectPath) -> Check:
    """Whether there is a predicate at `path`: without one, every call of the target would raise."""
    source = read(path)
    check = _exists("runtime_condition", path, source)
    if check.outcome == "pass" and isinstance(source.found, Definition):
        kind = source.found.kind
        if kind in ("property", "cached_property"):
            return Check("runtime_condition", "fail", path, "a callable", f"a {kind}")
    return check


def trusted(path: str, source: Source, trust: Trust) -> Check:
    """Whether the code found is code that the config trusts.

    A stated hash that cannot be compared fails like one that differs: where the code has changed
    so much that it cannot be read from source any more, it is not the code that was validated. As
    long as the module has not been found, there is nothing to compare with, which is unknown.
    """
    if expected := trust.artifact_hashes.get(path):
        content = None if source.module is None else locate.artifact(source.module)
        if content is None:
            return _uncomparable("artifact_hash", path, expected, source, "its file was not found")
        return _compare("artifact_hash", path, expected, hashes.artifact_hash(content), source)
    by_source, by_tree = trust.source_hashes.get(path, ()), trust.ast_hashes.get(path, ())
    if not by_source and not by_tree:
        reason = "the config states no hash of the code that it was validated on"
        return Check("trust", "warning", path, actual="unknown", reason=reason)
    name = "source_hash" if by_source else "ast_hash"
    if not isinstance(source.found, Definition):
        return _uncomparable(name, path, by_source or by_tree, source, source.found.reason)
    by_source_now = hashes.source_hash(source.found.segments)
    by_tree_now = hashes.ast_hash(source.found.nodes)
    if by_tree_now in by_tree and by_source_now not in by_source:
        return _compare("ast_hash", path, by_tree, by_tree_now, source)
    now = by_source_now if by_source else by_tree_now
    changed = partial(_change, path, source, trust)
    return _compare(name, path, by_source or by_tree, now, source, changed)


def _uncomparable(
    name: str, path: str, expected: tuple[str, ...], source: Source, reason: str
) -> Check:
    stated = " or ".join(expected)
    if isinstance(source.found, Unknown) and not source.found.is_located:
        return Check(name, "unknown", path, stated, "nothing yet", reason)
    return _not_compared(name, path, stated, reason)


def _not_compared(name: str, path: str, stated: str, reason: str) -> Check:
    reason = f"the code cannot be compared with what was validated: {reason}"
    return Check(name, "fail", path, stated, "code without a hash", reason)


def _change(path: str, source: Source, trust: Trust) -> str:
    """What has changed first, where the source that was validated is kept."""
    from turbo_physai.evidence import validated  # wanted where something is wrong

    segments = validated.read(trust, path)
    if segments is None or not isinstance(source.found, Definition):
        return ""
    change = validated.first_change(segments, source.found)
    return f": {change}" if change else ", though only in formatting or comments"


def _compare(
    name: str,
    path: str,
    expected: tuple[str, ...],
    actual: str,
    source: Source,
    change: Callable[[], str] = str,
) -> Check:
    if actual in expected:
        return Check(name, "pass", path, " or ".join(expected), actual)
    reason = f"the code at {source.place} is not what was validated{change()}"
    return Check(name, "fail", path, " or ".join(expected), actual, reason)


def _names_itself(path: str, target: Definition) -> Iterator[Check]:
    """Warns of a class whose methods look it up by name when they run."""
    node = target.nodes[0]
    for call in ast.walk(node) if target.kind == "class" else ():
        if isinstance(call, ast.Call) and getattr(call.func, "id", None) == "super":
            first = call.args[0] if call.args else None
            if isinstance(first, ast.Name) and first.id == node.name:
                reason = (
                    f"line {call.lineno} says super({node.name}, …), "
                    "which will find the replacement: replace methods instead"
                )
                yield Check("super", "warning", path, reason=reason)
                return


def _kinds(path: str, theirs: str, ours: str) -> Check:
    if (theirs == "class") is (ours == "class"):
        return Check("kind", "pass", path, theirs, ours)
    return Check("kind", "fail", path, theirs, ours)


def _signatures(path: str, target: Definition, ours: Definition) -> Check:
    theirs_, ours_ = _signature(target), _signature(ours)
    if theirs_ is None or ours_ is None:
        return Check("signature", "not_applicable", path)
    reason = signatures.mismatch(theirs_, ours_, method=target.kind in ("method", "classmethod"))
    outcome = "pass" if reason is None else "fail"
    reason = "" if reason is None else f"the replacement {reason}"
    return Check("signature", outcome, path, str(theirs_), str(ours_), reason)  # type: ignore[arg-type]


def _signature(definition: Definition) -> Signature | None:
    node = definition.nodes[0]
    if definition.kind in ("class", "property", "cached_property"):
        return None
    return signatures.of_definition(node)  # type: ignore[arg-type]
