"""Runs the command once, and reads what its ranks have measured."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from turbo_physai.errors import TurboPhysAIError
from turbo_physai.measure import PATTERN, SCHEMA, Request
from turbo_physai.process import settings

OUTPUT: Final = "output.txt"
_TAIL: Final = 15  # lines of a failed run's output that are shown


class RunError(TurboPhysAIError):
    """The command failed, or nothing could be measured in it."""


@attrs.frozen
class Run:
    """One run of the command.

    Attributes:
        ranks: what each rank has measured, in their order.
        folder: where its reports and its output lie.
        warnings: what is to be said of it.
    """

    ranks: tuple[Mapping[str, Any], ...]
    folder: Path
    warnings: tuple[str, ...] = ()

    @property
    def seconds(self) -> list[float]:
        """Of each measured step: that of the slowest rank, for which the others wait."""
        return [max(times) for times in zip(*(r["seconds"] for r in self.ranks), strict=False)]

    @property
    def groups(self) -> Mapping[str, Mapping[str, Any]]:
        """The Groups of the first rank."""
        groups: Mapping[str, Mapping[str, Any]] = self.ranks[0]["groups"]
        return groups

    def peak(self, of: str) -> int | None:
        """The most memory of any rank: ``process``, ``cuda`` or ``cuda_reserved``."""
        found = [rank["peak_bytes"][of] for rank in self.ranks]
        return max((each for each in found if each is not None), default=None)


def run(
    command: Sequence[str], request: Request, disabled: Sequence[str], run_id: str, name: str
) -> Run:
    """Runs `command` until it has made the steps that were asked for.

    Args:
        command: the command.
        request: what to measure; its folder gets the reports and the output too.
        disabled: ids of Groups that are not applied, besides those that the environment states.
        run_id: the id of the run in its reports.
        name: what messages call it.

    Raises:
        RunError: it failed, or nothing was measured.
    """
    folder = Path(request.folder)
    folder.mkdir(parents=True)
    off = dict.fromkeys((*settings.DISABLE_GROUPS.ids(), *disabled))
    environment = {
        **os.environ,
        settings.MEASURE.variable: request.to_text(),
        settings.REPORT_DIR.variable: request.folder,
        settings.RUN_ID.variable: run_id,
        settings.DISABLE_GROUPS.variable: ",".join(off),
    }
    output = folder / OUTPUT
    with output.open("wb") as file:
        try:
            done = subprocess.run(
                list(command),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", error)
            raise RunError(f"{command[0]}: {why}") from error
    return _read(folder, request, done.returncode, name)


def _read(folder: Path, request: Request, code: int, name: str) -> Run:
    ranks = sorted(
        (_load(file) for file in folder.glob(PATTERN)), key=lambda measured: measured["rank"]
    )
    complete = [rank for rank in ranks if len(rank["seconds"]) >= request.steps]
    if code and (not ranks or len(complete) < len(ranks)):
        raise RunError(f"{name}: the command ended with {code}{_tail(folder)}")
    if not ranks:
        raise RunError(f"{name}: {_nothing_measured(folder)}{_tail(folder)}")
    measured = min(len(rank["seconds"]) for rank in ranks)
    if measured < 1:
        count = max(len(rank["losses"]) for rank in ranks)
        raise RunError(
            f"{name}: found {count} optimizer steps in the whole run; at least "
            f"{request.warmup + 1} are needed with --warmup {request.warmup}{_tail(folder)}"
        )
    warnings = []
    if code:
        warnings.append(f"{name}: the command ended with {code} after it was measured")
    if measured < request.steps:
        warnings.append(f"{name}: it ended after {measured} of {request.steps} measured steps")
    size = ranks[0]["world_size"]
    if len(ranks) != size:
        warnings.append(f"{name}: {len(ranks)} of {size} ranks were measured")
    return Run(tuple(ranks), folder, tuple(warnings))


def _load(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if content.get("schema_version") != SCHEMA:
        found = content.get("schema_version")
        raise RunError(f"{file}: found the schema {found!r}; accepted: {SCHEMA}")
    return content


def _nothing_measured(folder: Path) -> str:
    if any(folder.glob("report-*.json")):
        return (
            "no step was counted; a step is a call of step() of an optimizer that derives from "
            "torch.optim.Optimizer"
        )
    return (
        "no process was measured; the command activates none, so name a config with --model or "
        "--optimization-config"
    )


def _tail(folder: Path) -> str:
    """The end of what the command has printed, for a message."""
    text = (folder / OUTPUT).read_text(encoding="utf-8", errors="replace")
    lines = text.rstrip().splitlines()[-_TAIL:]
    shown = "".join(f"\n    {line}" for line in lines)
    return f"; the end of its output:{shown}" if shown else "; it has printed nothing"
