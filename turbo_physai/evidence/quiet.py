"""Parses source without a warning, which python gives where it imports the module itself."""

from __future__ import annotations

import ast
import contextlib
import re
import warnings
from collections.abc import Iterator


def parse(source: str, module: str) -> ast.Module:
    """The syntax tree of a module.

    Raises:
        SyntaxError: it is no Python source of this version, or more than the parser can hold.
    """
    name = f"<source of {module}>"
    try:
        with _without_warnings_of(name):
            return ast.parse(source, name)
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL; brackets without end
        raise SyntaxError(str(error) or "too deeply nested") from error


@contextlib.contextmanager
def _without_warnings_of(file: str) -> Iterator[None]:
    # `warnings.catch_warnings` swaps the filters of the whole process: another thread that is
    # inside of one as well may put ours back after we have gone, and nobody is ever warned again.
    # A filter for a file that only we give that name is nothing to others, even if it stays behind.
    ignore = ("ignore", None, Warning, re.compile(re.escape(file)), 0)
    filters: list[object] = warnings.filters  # type: ignore[assignment]
    filters.insert(0, ignore)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            filters.remove(ignore)
