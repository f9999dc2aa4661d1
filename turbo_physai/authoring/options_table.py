"""The options of Groups as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turbo_physai.declarations.option_types import spelled
from turbo_physai.declarations.options import options_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from turbo_physai.plan.prepared import PreparedGroup

_HEAD = ("option", "type", "default", "value", "help")


def as_tables(groups: Iterable[PreparedGroup]) -> str:
    """A table for each Group that has options, and the names of those that have none."""
    tables, without = [], []
    for group in groups:
        rows = [
            (
                each.name,
                each.kind.name,
                spelled(each.default),
                spelled(getattr(group.options, each.name)),
                each.help,
            )
            for each in options_of(group.declared.options)
        ]
        if rows:
            enabled = "" if group.entry.is_enabled else " (not enabled)"
            tables.append("\n".join([f"{group.id}{enabled}", *_aligned([_HEAD, *rows])]))
        else:
            without.append(group.id)
    if without:
        tables.append(f"without options: {', '.join(without)}")
    return "\n\n".join(tables)


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
