"""A comparison for people: in a terminal, and as Markdown."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator
from typing import Final

from turbo_physai.compare.figures import Comparison, Figures, LossDifference

WIDTH: Final = 100
_HEAD: Final = ("", "step", "p10", "p90", "speed-up", "peak memory", "last loss")

# Equal runs on an idle machine differ by less than this factor.
_NOISY: Final = 1.1

Row = tuple[str, ...]


def as_text(comparison: Comparison) -> str:
    """For a terminal."""
    blocks = [_wrapped([_headline(comparison)]), _aligned(_rows(comparison))]
    if comparison.ablated:
        blocks.append(_aligned(_ablation(comparison)))
    blocks.append(_wrapped(_notes(comparison)))
    return "\n\n".join(blocks)


def as_markdown(comparison: Comparison) -> str:
    """For an issue or a log book."""
    blocks = [f"## {_headline(comparison)}", _markdown(_rows(comparison))]
    if comparison.ablated:
        blocks.append(_markdown(_ablation(comparison)))
    blocks.append("\n".join(f"- {note}" for note in _notes(comparison)))
    return "\n\n".join(blocks)


def _headline(c: Comparison) -> str:
    ratio, least, most = c.speedup(c.with_)
    spread = f" ({least:.2f} to {most:.2f} by round)" if c.runs > 1 else ""
    ranks = f"{c.ranks} rank{'s' if c.ranks > 1 else ''}"
    return f"{ratio:.2f} times as fast{spread}, on {c.device}, {ranks}"


def _rows(c: Comparison) -> Iterator[Row]:
    yield _HEAD
    for side in (c.without, c.with_):
        yield (
            side.side.name,
            seconds(side.median),
            seconds(side.p10),
            seconds(side.p90),
            f"{c.speedup(side)[0]:.2f}x",
            _memory(side),
            _last_loss(side),
        )


def _ablation(c: Comparison) -> Iterator[Row]:
    yield ("Group", "step without it", "it saves", "of a step")
    whole = c.without.median
    for side in sorted(c.ablated, key=c.saved, reverse=True):
        saved = c.saved(side)
        yield (
            str(side.side.group),
            seconds(side.median),
            seconds(saved),
            f"{saved / whole:.1%}",
        )
    together = sum(map(c.saved, c.ablated))
    yield ("sum", "", seconds(together), f"{together / whole:.1%}")
    gained = c.saved(c.without)
    yield ("all at once", seconds(whole), seconds(gained), f"{gained / whole:.1%}")


def _notes(c: Comparison) -> Iterator[str]:
    kept = ", ".join(c.without.side.applied) or "no Group"
    yield f"without: {kept}"
    yield f"with: {', '.join(c.with_.side.applied)}"
    for side in c.ablated:
        also = [
            id_
            for id_ in c.with_.side.applied
            if id_ not in side.side.applied and id_ != side.side.group
        ]
        if also:
            yield f"without {side.side.group} there is no {', '.join(also)} either"
    yield _loss_note(c.difference, c.noise)
    yield f"{c.steps} steps a run after {c.warmup}, {c.runs} runs a side, in turns"
    yield f"command: {shlex.join(c.command)}"
    yield from (f"warning: {warning}" for warning in c.warnings)
    if c.spread > _NOISY:
        yield (
            f"warning: equal runs differ by a factor of {c.spread:.2f}, so the machine does other "
            "work as well, or its clock changes; repeat it on an idle one, or with more --runs"
        )


def _loss_note(difference: LossDifference | None, noise: LossDifference | None) -> str:
    if difference is None:
        return "losses: none was seen; --loss names the variable that holds it"
    one, other = difference.losses
    text = (
        f"losses differ by at most {difference.absolute:.3g} (step {difference.step}, rank "
        f"{difference.rank}: {one:.6g} with, {other:.6g} without)"
    )
    if noise is None:
        return text
    return f"{text}; those of equal runs by at most {noise.absolute:.3g}"


def seconds(value: float) -> str:
    """A time in a unit that suits it."""
    return f"{value:.3f} s" if abs(value) >= 1 else f"{value * 1e3:.3g} ms"


def _memory(side: Figures) -> str:
    cuda, process = side.peak_bytes["cuda"], side.peak_bytes["process"]
    parts = [f"{cuda / 2**30:.2f} GiB CUDA"] if cuda else []
    parts += [f"{process / 2**30:.2f} GiB"] if process else []
    return ", ".join(parts)


def _last_loss(side: Figures) -> str:
    last = side.losses[-1] if side.losses else None
    return "" if last is None else f"{last:.6g}"


def _aligned(rows: Iterator[Row]) -> str:
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def _markdown(rows: Iterator[Row]) -> str:
    head, *body = rows
    lines = [head, ("---",) * len(head), *body]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines
    )


def _wrapped(lines: Iterator[str] | list[str]) -> str:
    return "\n".join(
        line
        for text in lines
        for line in textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    )
