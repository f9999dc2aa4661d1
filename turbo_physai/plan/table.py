"""A PreparedExecution for people: a table of what was decided, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turbo_physai.plan.prepared import PreparedExecution

WIDTH: Final = 100  # columns


def table(prepared: PreparedExecution) -> str:
    """One row a Group, and below them the checks of the config as a whole that did not pass."""
    import textwrap

    lines = list(_rows(prepared))
    for check in prepared.checks:
        if check.outcome in ("fail", "warning"):
            lines += textwrap.wrap(f"{check.outcome}: {check}", WIDTH, subsequent_indent="    ")
    return "\n".join(lines)


def _rows(prepared: PreparedExecution) -> Iterator[str]:
    import textwrap

    rows = [("Group", "decision", "reason")]
    for id_, group in prepared.groups.items():
        decision = f"{group.decision} (forced)" if group.forced else group.decision
        rows.append((id_, decision, group.reason))
    first, second = (max(len(row[i]) for row in rows) for i in (0, 1))
    for id_, decision, reason in rows:
        start = f"{id_:{first}}  {decision:{second}}  "
        room = max(WIDTH - len(start), 30)
        parts = textwrap.wrap(reason, room) or [""]
        yield (start + parts[0]).rstrip()
        yield from (" " * len(start) + part for part in parts[1:])
