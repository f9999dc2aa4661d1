"""The report as text: Markdown that reads well in a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from turbo_physai.engine.records import GroupState, MemberState
from turbo_physai.process.messages import has_logging, print_error
from turbo_physai.process.ranks import rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turbo_physai.engine.calls import Verification
    from turbo_physai.engine.records import GroupRecord, MemberRecord
    from turbo_physai.report.readable import Readable


# How many outputs of a Replacement are shown with their errors.
_WORST: Final = 4


def log(report: Readable) -> None:
    """Sends the report to the logger ``turbo_physai``: rank 0 the whole, other ranks one line.
    Workers and helpers are silent."""
    if not report.leaves_journal:
        return
    text = render(report) if rank() == 0 else f"turbo_physai: rank {rank()}: {one_line(report)}"
    if not has_logging():
        print_error(text)
        return
    import logging

    logger = logging.getLogger("turbo_physai")
    if logger.hasHandlers() and logger.isEnabledFor(logging.INFO):
        logger.info("%s", text)
        return
    # The program has not set up logging, yet the report was asked for: stderr, this once.
    handler = logging.StreamHandler(sys.stderr)
    handler.emit(logger.makeRecord(logger.name, logging.INFO, __file__, 0, text, (), None))


def one_line(report: Readable) -> str:
    """How many Groups are in each state, those with none left out."""
    counts = [f"{count} {state}" for state, count in report.summary.items() if count]
    return ", ".join(counts) or "no Groups"


def render(report: Readable) -> str:
    """The whole report, between a begin and an end line that carry the run id."""
    head = "final" if report.final else "not final: some targets were not loaded yet"
    lines = [
        f"===== turbo_physai report {report.run_id} begin =====",
        f"{one_line(report)} ({head})",
        f"config: {report.optimization_config.id}, {report.optimization_config_path}",
        f"journal: {report.journal.error or report.journal.path}",
    ]
    for check in report.prepared_execution.checks:
        if check.outcome in ("warning", "fail"):
            lines.append(f"{check.outcome}: {check}")
    for id_, group in report.execution.items():
        lines += ["", *_group(report, id_, group)]
    lines.append(f"===== turbo_physai report {report.run_id} end =====")
    return "\n".join(lines)


def _group(report: Readable, id_: str, group: GroupRecord) -> Iterator[str]:
    prepared = report.prepared_execution.groups[id_]
    forced = " (forced)" if prepared.forced else ""
    yield f"## {id_}: {group.state.value}{forced}" + (f" ({group.reason})" if group.reason else "")
    for check in prepared.checks:
        if check.outcome in ("warning", "fail", "unknown"):
            is_let_through = check.outcome == "fail" and not check.blocks(forced=prepared.forced)
            yield f"- {check.outcome}{', let through' if is_let_through else ''}: {check}"
    for warning in group.warnings:
        yield f"- warning: {warning}"
    if group.error is not None:
        yield f"- error: {group.error}"
    if group.state is not GroupState.SKIPPED:
        for member in group.members:
            yield from _member(member)


def _member(member: MemberRecord) -> Iterator[str]:
    note = f" ({member.note})" if member.note else ""
    yield f"- {member.kind} {member.target}: {member.state.value}{note}"
    if member.state is MemberState.BOUND and member.replacement is not None:
        by = "wrapped by " if member.kind == "wrap" else ""
        before = f"{member.original} -> " if member.original is not None else ""
        yield f"    - {before}{by}{member.replacement}"
    if member.backend is not None:
        yield f"    - backend: {member.backend}"
    yield from _calls(member)
    if member.verification is not None:
        yield from _verification(member.verification)
    for name, value in member.metrics.items():
        yield f"    - {name}: {_plainly(value)}"
    if member.captured:
        yield f"    - also changed: {', '.join(member.captured)}"
    if member.left:
        yield f"    - warning: still held by {', '.join(member.left)}"
    if member.error is not None:
        yield f"    - error: {member.error}"


def _calls(member: MemberRecord) -> Iterator[str]:
    calls = member.calls
    if calls is None:
        return
    compiled = ", and in compiled callers" if calls.is_compiled else ""
    if not member.has_condition:
        yield f"    - calls: {calls.replacement or 'none'}{compiled}"
        return
    counts = f"{calls.replacement} on the replacement, {calls.original} on the original"
    yield f"    - calls: {counts} (runtime_condition){compiled}"
    if calls.first_original:
        yield f"    - first on the original: {calls.first_original}"


def _verification(found: Verification) -> Iterator[str]:
    if found.calls:
        yield f"    - verified: {found.calls} calls, {found.with_gradients} with gradients"
        worst = sorted(found.errors.items(), key=lambda item: -item[1][1])[:_WORST]
        for name, (absolute, relative) in worst:
            yield f"        - {name}: worst error {absolute:.2g}, relative {relative:.2g}"
    if found.skipped:
        which = "not all calls verified" if found.calls else "not verified"
        yield f"    - {which}: {found.skipped}"
    if found.mismatch:
        yield f"    - MISMATCH: {found.mismatch}"
        yield f"        - inputs: {found.inputs}"
        kept = found.saved or "not kept; --verify-save DIR keeps them"
        yield f"        - to reproduce: {kept}"


def _plainly(metric: Any) -> str:
    if isinstance(metric, dict):
        return ", ".join(f"{name} {value}" for name, value in metric.items())
    return str(metric)
