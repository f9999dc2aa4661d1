"""A merged report for people: in a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from turbo_physai.process.ranks import spans
from turbo_physai.report.merge import MergedGroup, MergedReport, Outcome


def as_text(merged: MergedReport) -> str:
    """For a terminal: one line a Group, and one for each outcome of those that differ."""
    lines = [headline(merged), *(f"warning: {note}" for note in notes(merged))]
    width = max((len(group.id) for group in merged.groups), default=0)
    for group in merged.groups:
        if group.differs:
            lines.append(f"{group.id:{width}}  DIFFERS between ranks")
            lines += (f"    {_ranks(o)}: {o.state}{_reason(group, o)}" for o in group.outcomes)
        else:
            (outcome,) = group.outcomes
            lines.append(f"{group.id:{width}}  {outcome.state}{_reason(group, outcome)}")
        lines += (f"    warning: {warning}" for warning in group.warnings)
    return "\n".join(lines)


def as_markdown(merged: MergedReport) -> str:
    """For an issue or a log book: a table with one row for each outcome."""
    lines = [f"## {headline(merged)}", ""]
    for note in notes(merged):
        lines += [f"**Warning:** {note}", ""]
    lines += ["| Group | Outcome | Ranks | Why |", "| --- | --- | --- | --- |"]
    for group in merged.groups:
        name = f"**{group.id} differs**" if group.differs else group.id
        for outcome in group.outcomes:
            why = "; ".join((_reason(group, outcome)[2:], *group.warnings)).strip("; ")
            cells = (name, outcome.state, spans(outcome.ranks), why)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def headline(merged: MergedReport) -> str:
    """The run, and whether its ranks agree."""
    count = len(merged.ranks)
    text = f"run {merged.run_id}: {count} rank{'s' if count > 1 else ''}"
    differing = sum(group.differs for group in merged.groups)
    return f"{text}, {differing} of {len(merged.groups)} Groups differ" if differing else text


def notes(merged: MergedReport) -> Iterator[str]:
    """What there is to say of the run as a whole."""
    if merged.missing:
        yield f"no report of rank {spans(merged.missing)}"
    running = [rank for rank, process in merged.ranks.items() if not process.report["final"]]
    if running:
        yield f"rank {spans(running)} still runs, or ended without a word"
    if merged.others:
        names = ", ".join(f"{p.name} (rank {p.rank})" for p in merged.others)
        yield f"further processes, not counted: {names}"
    if merged.other_runs:
        yield f"other runs here, to be shown with --run-id: {', '.join(merged.other_runs)}"
    yield from merged.unreadable


def _ranks(outcome: Outcome) -> str:
    return f"rank {spans(outcome.ranks)}"


def _reason(group: MergedGroup, outcome: Outcome) -> str:
    reasons = [outcome.reason] if outcome.reason else []
    if outcome.forced:
        reasons.append(f"forced past {', '.join(outcome.forced)}")
    if [other.state for other in group.outcomes].count(outcome.state) > 1:
        # The difference lies deeper than the state.
        shared = set.intersection(*(set(other.members) for other in group.outcomes))
        reasons += [member for member in outcome.members if member not in shared]
    return f": {'; '.join(reasons)}" if reasons else ""
