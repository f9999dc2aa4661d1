"""A merged report as one page of HTML: nothing of it comes from elsewhere, and everything that a
run has named is escaped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from turbo_physai.process.ranks import spans
from turbo_physai.report.merge import MergedGroup, MergedReport
from turbo_physai.report.show import headline, notes

_STYLE: Final = Path(__file__).with_name("page.css")
_PAGE: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header><h1>turbo_physai report</h1><p>{headline}</p></header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main>{body}</main>
</body>
</html>
"""
_COMPARISON: Final = "comparison.json"
_WIDTH: Final = 900  # of pictures
_MOST_COLUMNS: Final = 32  # ranks; of more, those that differ are named
# How a state is marked, besides its word: not by colour alone.
_MARKS: Final = {"applied": ("good", "✓"), "skipped": ("quiet", "-"), "pending": ("warn", "…")}
_OUTCOMES: Final = {"pass": "good", "fail": "bad", "warning": "warn", "unknown": "warn"}
# Fields of a member that have cells of their own, or that only machines read.
_SHOWN: Final = ("kind", "target", "aliases", "state", "module", "original", "replacement")
_FIELDS: Final = {
    "seconds": "bound after, in seconds",
    "times_bound": "times bound",
    "captured": "references changed with it",
    "left": "references that could not be changed",
}


def as_html(merged: MergedReport, comparison: Mapping[str, Any] | None = None) -> str:
    """The page.

    Args:
        merged: the report.
        comparison: what ``turbo-physai compare`` has left beside it, if anything.
    """
    spokesman = merged.ranks[min(merged.ranks)].report
    sections = [
        ("summary", "Summary", _summary(merged, spokesman)),
        ("groups", "Groups and ranks", _groups(merged)),
        ("timeline", f"Timeline of rank {min(merged.ranks)}", _timeline(spokesman)),
        ("details", "Evidence and members", _details(merged, spokesman)),
    ]
    if comparison is not None:
        sections.insert(1, ("comparison", "With and without", _comparison(comparison)))
    sections = [(id_, title, body) for id_, title, body in sections if body]
    links = "".join(f'<li><a href="#{id_}">{escape(title)}</a></li>' for id_, title, _ in sections)
    body = "".join(
        f'<section aria-labelledby="{id_}"><h2 id="{id_}">{escape(title)}</h2>{content}</section>'
        for id_, title, content in sections
    )
    return _PAGE.format(
        title=f"turbo_physai: run {escape(merged.run_id)}",
        style=_STYLE.read_text(encoding="utf-8"),
        headline=escape(headline(merged)),
        links=links,
        body=body,
    )


def comparison_in(folder: Path) -> Mapping[str, Any] | None:
    """What ``turbo-physai compare`` has left in a folder, if that can be read."""
    try:
        found = json.loads((folder / _COMPARISON).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("sides") else None


def _summary(merged: MergedReport, report: Mapping[str, Any]) -> str:
    counts = Counter(outcome.state for group in merged.groups for outcome in group.outcomes[:1])
    cards = "".join(f"<li><b>{count}</b>{_state(state)}</li>" for state, count in counts.items())
    warnings = [*notes(merged), *_warnings(merged.groups)]
    listed = "".join(f"<li>{escape(each)}</li>" for each in warnings)
    environment = report["prepared_execution"]["environment"]
    rows = [
        ("config", report["optimization_config_path"]),
        ("started", report["started_at"]),
        *((name, value) for name, value in environment.items()),
    ]
    facts = [(_code(name), _value(value)) for name, value in rows if value not in (None, "")]
    return (
        f'<ul class="cards">{cards}</ul>'
        + (f'<div class="notes"><h3>Warnings</h3><ul>{listed}</ul></div>' if warnings else "")
        + _details_of("Environment", _table("Environment", ("what", "found"), facts))
    )


def _warnings(groups: Iterable[MergedGroup]) -> Iterator[str]:
    for group in groups:
        for outcome in group.outcomes:
            if group.is_missed and outcome.state not in ("applied", "skipped"):
                yield f"{group.id}: {outcome.state}: {outcome.reason}"
        yield from (f"{group.id}: {warning}" for warning in group.warnings)


def _groups(merged: MergedReport) -> str:
    if len(merged.ranks) > _MOST_COLUMNS:
        rows = [
            (_code(group.id), f"{_state(outcome.state)} rank {spans(outcome.ranks)}", _why(outcome))
            for group in merged.groups
            for outcome in group.outcomes
        ]
        return _table("Groups", ("Group", "outcome", "why"), rows)
    ranks = sorted(merged.ranks)
    rows_ = []
    for group in merged.groups:
        by_rank = {rank: outcome for outcome in group.outcomes for rank in outcome.ranks}
        name = _code(group.id) + (' <b class="bad">differs</b>' if group.differs else "")
        rows_.append((name, *(_state(by_rank[rank].state) for rank in ranks)))
    return _table(
        "State of each Group on each rank", ("Group", *(f"rank {r}" for r in ranks)), rows_
    )


def _why(outcome: Any) -> str:
    return escape(outcome.reason)


def _timeline(report: Mapping[str, Any]) -> str:
    """When each member was bound, from the first to the last."""
    bound = sorted(
        (member["seconds"], id_, member["target"])
        for id_, group in report["execution"].items()
        for member in group["members"]
        if member["seconds"] is not None
    )
    if not bound:
        return ""
    last = bound[-1][0] or 1.0
    height, width, left = 22, _WIDTH, 8
    marks = ""
    for i, (at, _, target) in enumerate(bound):
        x, y = left + (width - 2 * left) * at / last, height * i + 12
        marks += f'<circle class="mark" cx="{x:.1f}" cy="{y}" r="5"/>'
        # Beside its mark, on the side where there is more room.
        side = ("end", x - 10) if x > width / 2 else ("start", x + 10)
        name = escape(".".join(target.replace(":", ".").split(".")[-2:]))
        marks += f'<text x="{side[1]:.1f}" y="{y + 4}" text-anchor="{side[0]}">{name}</text>'
    axis = height * len(bound) + 6
    marks += (
        f'<line class="axis" x1="0" y1="{axis}" x2="{width}" y2="{axis}"/>'
        f'<text x="0" y="{axis + 15}">0 s</text>'
        f'<text x="{width}" y="{axis + 15}" text-anchor="end">{last:.2f} s</text>'
    )
    picture = _picture(marks, axis + 20, "When each target was bound")
    rows = [(f"{at:.3f}", _code(id_), _code(target)) for at, id_, target in bound]
    table = _table("Bindings", ("seconds since the start", "Group", "target"), rows)
    return picture + _details_of("The same as a table", table)


def _details(merged: MergedReport, report: Mapping[str, Any]) -> str:
    parts = []
    for group in merged.groups:
        executed = report["execution"].get(group.id)
        if executed is None:
            continue
        prepared = report["prepared_execution"]["groups"][group.id]
        reason = f"<p>{escape(executed['reason'])}</p>" if executed["reason"] else ""
        rows = [
            (
                escape(member["kind"]),
                _code(member["target"]),
                escape(member["state"]),
                _origin(member["original"]),
                _origin(member["replacement"]),
                _rest(member),
            )
            for member in executed["members"]
        ]
        columns = ("kind", "target", "state", "original", "replacement", "more")
        members = _table(f"Members of {group.id}", columns, rows)
        checks = [
            (
                escape(check["name"]),
                _marked(_OUTCOMES.get(check["outcome"], "quiet"), check["outcome"]),
                _code(check["subject"]),
                _code(check["expected"]),
                _code(check["actual"]),
                escape(check["reason"]),
            )
            for check in prepared["checks"]
        ]
        columns = ("check", "outcome", "of", "expected", "found", "why")
        evidence = _table(f"Checks of {group.id}", columns, checks) if checks else ""
        options = prepared.get("options")
        shown = f"<p>options: {_value(options)}</p>" if options else ""
        title = f"{_code(group.id)} {_state(executed['state'])}"
        is_open = executed["state"] not in ("applied", "skipped")
        parts.append(_details_of(title, reason + shown + members + evidence, is_open=is_open))
    return "".join(parts)


def _rest(member: Mapping[str, Any]) -> str:
    """What there is to say of a member beyond its columns, whatever it is: calls, metrics, how it
    compared with the original."""
    found = [
        f"{escape(_FIELDS.get(name, name.replace('_', ' ')))}: {_value(value)}"
        for name, value in member.items()
        if name not in _SHOWN and value not in (None, "", [], {}, 0)
    ]
    aliases = [f"also as {_code(', '.join(member['aliases']))}"] if member["aliases"] else []
    return "<br>".join([*aliases, *found])


def _comparison(found: Mapping[str, Any]) -> str:
    rows = [
        (
            escape(str(side["name"])),
            f"{side['median_seconds']:.4g}",
            f"{side['p10_seconds']:.4g}",
            f"{side['p90_seconds']:.4g}",
        )
        for side in found["sides"]
    ]
    most = max(side["median_seconds"] for side in found["sides"]) or 1.0
    bars = ""
    for i, side in enumerate(found["sides"]):
        median = side["median_seconds"]
        name, y = escape(f"{side['name']}: {median:.4g} s"), 40 * i
        bars += f'<text x="0" y="{y + 12}">{name}</text>'
        width = f"{_WIDTH * median / most:.1f}"
        bars += f'<rect class="mark" x="0" y="{y + 17}" width="{width}" height="14"/>'
    picture = _picture(bars, 40 * len(found["sides"]), "Median time of a step on each side")
    columns = ("side", "median, in seconds", "p10", "p90")
    return picture + _table("Seconds a step", columns, rows)


def _picture(content: str, height: int, label: str) -> str:
    label = f"{label}; the table below has the same numbers"
    box = f"0 0 {_WIDTH} {height}"
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(label)}">{content}</svg>'


def _state(state: str) -> str:
    kind, mark = _MARKS.get(state, ("bad", "✗"))
    word = f'<span aria-hidden="true">{mark}</span> {escape(state)}'
    return f'<span class="state {kind}">{word}</span>'


def _marked(kind: str, text: str) -> str:
    return f'<span class="{kind}">{escape(text)}</span>'


def _origin(origin: Mapping[str, Any] | None) -> str:
    if origin is None:
        return ""
    place = ":".join(str(part) for part in (origin["file"], origin["line"]) if part is not None)
    return _code(origin["name"]) + (f"<br>{_marked('quiet', place)}" if place else "")


def _value(value: Any) -> str:
    """Any value of a report."""
    if isinstance(value, Mapping):
        shown = (f"{escape(str(k))}: {_value(v)}" for k, v in value.items() if v is not None)
        return ", ".join(shown)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_value, value))
    return _code(value if isinstance(value, str) else json.dumps(value, default=str))


def _code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>" if text not in (None, "") else ""


def _details_of(title: str, body: str, *, is_open: bool = False) -> str:
    return f"<details{' open' if is_open else ''}><summary>{title}</summary>{body}</details>"


def _table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already. It can be scrolled with the keyboard."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
