"""Hashes that identify code. Their first part names the way they are computed."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from typing import Any

# Fields that carry no meaning of their own, or that only some Python versions have.
_SILENT = frozenset({"ctx", "kind", "type_comment"})


def source_hash(segments: Sequence[str]) -> str:
    """``source-v1``: the lines of a definition, decorators included, without common indentation."""
    text = "\n".join(textwrap.dedent(segment).rstrip() for segment in segments)
    return f"source-v1:{_sha256(_encoded(text))}"


def ast_hash(nodes: Sequence[ast.AST]) -> str:
    """``ast-v1``: the syntax tree of a definition; formatting and comments do not matter. The same
    in every supported Python version."""
    return f"ast-v1:{_sha256(_encoded(' '.join(map(_dump, nodes))))}"


def artifact_hash(content: bytes) -> str:
    """``artifact-v1``: the bytes of a file, for modules that have no source."""
    return f"artifact-v1:{_sha256(content)}"


def _sha256(content: bytes) -> str:
    import hashlib  # it loads OpenSSL, which only configs that state hashes need

    return hashlib.sha256(content).hexdigest()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _dump(value: Any) -> str:
    # ast.dump differs between Python versions in which empty fields it shows; none are shown here.
    if isinstance(value, ast.JoinedStr):
        # Python 3.12 ends some formatted strings with an empty piece of text.
        value.values = [v for v in value.values if getattr(v, "value", None) != ""]
    if isinstance(value, ast.AST):
        fields = ((name, field) for name, field in ast.iter_fields(value) if name not in _SILENT)
        shown = (f"{name}={_dump(field)}" for name, field in fields if field not in (None, []))
        return f"{type(value).__name__}({', '.join(shown)})"
    if isinstance(value, list):
        return f"[{', '.join(map(_dump, value))}]"
    return repr(value)
