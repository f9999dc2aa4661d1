"""Rows of text as a table that fits a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

WIDTH: Final = 100  # columns


def table(rows: Iterable[tuple[str, str, str]], notes: Iterable[str] = ()) -> str:
    """Three columns, of which the last is wrapped, and notes below them."""
    lines = list(_lines(list(rows)))
    for note in notes:
        lines += textwrap.wrap(note, WIDTH, subsequent_indent="    ")
    return "\n".join(lines)


def _lines(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    first, second = (max(len(row[i]) for row in rows) for i in (0, 1))
    for one, two, three in rows:
        start = f"{one:{first}}  {two:{second}}  "
        parts = textwrap.wrap(three, max(WIDTH - len(start), 30)) or [""]
        yield (start + parts[0]).rstrip()
        yield from (" " * len(start) + part for part in parts[1:])
