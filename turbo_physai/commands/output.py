"""What a command prints: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, default=str))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table that fits the terminal; where the output is no terminal, a line a row, however
    long."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=100_000)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=i == 0 and console.is_terminal)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())
