"""The source that a config was validated on, in a file of its own beside the config.

The file may be left out: hashes alone decide. Where it is there, a change can be shown.
"""

from __future__ import annotations

import ast
import difflib
import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from turbo_physai.config import Trust
from turbo_physai.evidence import hashes
from turbo_physai.evidence.definitions import Definition

SUFFIX: Final = ".source.json"


def beside(config: Path) -> Path:
    """The file with the sources that belong to a config."""
    return config.with_name(config.stem + SUFFIX)


def as_text(sources: dict[str, Definition]) -> str:
    """The content of such a file, from the definitions of targets."""
    segments = {target: _segments(found.segments) for target, found in sources.items()}
    return json.dumps(segments, indent=1) + "\n"


def read(trust: Trust, target: str) -> list[str] | None:
    """The source that `target` was validated on, in pieces as `Definition.segments`, without common
    indentation; None where it is not kept, or is not what the hashes stand for."""
    if trust.file is None:
        return None
    try:
        segments = json.loads(beside(trust.file).read_text(encoding="utf-8"))[target]
        is_it = hashes.source_hash(segments) in trust.source_hashes.get(target, ())
        return (
            segments if is_it or _tree_hash(segments) in trust.ast_hashes.get(target, ()) else None
        )
    except (OSError, ValueError, KeyError, TypeError, SyntaxError):
        return None


def diff(validated: Sequence[str], found: Definition, place: str) -> str:
    """What has changed, as a unified diff."""
    now = _segments(found.segments)
    lines = difflib.unified_diff(
        "\n".join(validated).splitlines(),
        "\n".join(now).splitlines(),
        "validated",
        place,
        lineterm="",
    )
    return "\n".join(lines)


def first_change(validated: Sequence[str], found: Definition) -> str:
    """The first line whose meaning has changed, and what stood there: ``line 5 is 'return 2', not
    'return 1'``. Empty where only formatting and comments differ."""
    before = [node for segment in validated for node in ast.parse(segment).body]
    for old, new in _changes(before, list(found.nodes)):
        if new is None:
            return f"{_line(old)!r} is missing" if old is not None else ""
        was = "" if old is None else f", not {_line(old)!r}"
        return f"line {_number(new)} is {_line(new)!r}{was}"
    return ""


def _changes(
    old: Sequence[ast.AST], new: Sequence[ast.AST]
) -> Iterator[tuple[ast.AST | None, ast.AST | None]]:
    """The statements that differ, the innermost ones, in order."""
    before, after = [hashes.ast_hash([node]) for node in old], [hashes.ast_hash([n]) for n in new]
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after).get_opcodes():
        if kind == "equal":
            continue
        for i in range(max(b - a, d - c)):
            one = old[a + i] if a + i < b else None
            other = new[c + i] if c + i < d else None
            inner = list(_inside(one, other))
            yield from inner or [(one, other)]


def _inside(
    old: ast.AST | None, new: ast.AST | None
) -> Iterator[tuple[ast.AST | None, ast.AST | None]]:
    """The changes in the blocks of two statements of which nothing else differs."""
    if type(old) is not type(new) or old is None or new is None:
        return
    blocks = [name for name in ("body", "handlers", "orelse", "finalbody") if hasattr(new, name)]
    if _head(old) == _head(new):
        for name in blocks:
            if isinstance(getattr(new, name), list):
                yield from _changes(getattr(old, name), getattr(new, name))


def _head(node: ast.AST) -> str:
    """A compound statement without its blocks."""
    blocks = ("body", "handlers", "orelse", "finalbody")
    kept = {k: [] if k in blocks else value for k, value in ast.iter_fields(node)}
    return hashes.ast_hash([type(node)(**kept)])


def _line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0]


def _number(node: ast.AST) -> int:
    decorators = getattr(node, "decorator_list", [])
    return int(min(each.lineno for each in (node, *decorators)))


def pieces(found: Definition) -> list[str]:
    """Its source, in pieces, without common indentation."""
    return _segments(found.segments)


def _segments(segments: Sequence[str]) -> list[str]:
    return [textwrap.dedent(segment).rstrip() for segment in segments]


def _tree_hash(segments: Sequence[str]) -> str:
    return hashes.ast_hash([node for segment in segments for node in ast.parse(segment).body])
