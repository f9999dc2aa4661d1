"""What the runs of all sides say: step times, memory, losses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import attrs

from turbo_physai.compare.runs import Run
from turbo_physai.compare.sides import WITH, WITHOUT, Side

SCHEMA: Final = "turbophysai/comparison/v1"


@attrs.frozen
class LossDifference:
    """Where two runs differ most.

    Attributes:
        absolute: the difference of the two losses; infinite if one alone is no finite number.
        step: counted from 1.
        rank: the rank.
        losses: both.
    """

    absolute: float
    step: int
    rank: int
    losses: tuple[float, float]


@attrs.frozen
class Figures:
    """The numbers of one side.

    Attributes:
        side: the side.
        seconds: of each measured step of all runs.
        by_run: the median of each run.
        peak_bytes: the most memory of any run, by its kind.
        losses: of each step of the first run, on its first rank; None where none was seen.
    """

    side: Side
    seconds: tuple[float, ...]
    by_run: tuple[float, ...]
    peak_bytes: Mapping[str, int | None]
    losses: tuple[float | None, ...]

    @classmethod
    def of(cls, side: Side, runs: Sequence[Run]) -> Figures:
        peaks = {kind: [run.peak(kind) for run in runs] for kind in runs[0].ranks[0]["peak_bytes"]}
        return cls(
            side,
            tuple(second for run in runs for second in run.seconds),
            tuple(quantile(run.seconds, 0.5) for run in runs),
            {
                kind: max((each for each in found if each is not None), default=None)
                for kind, found in peaks.items()
            },
            tuple(runs[0].ranks[0]["losses"]),
        )

    @property
    def median(self) -> float:
        return quantile(self.seconds, 0.5)

    @property
    def p10(self) -> float:
        return quantile(self.seconds, 0.1)

    @property
    def p90(self) -> float:
        return quantile(self.seconds, 0.9)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.side.name,
            "disabled_groups": list(self.side.disabled),
            "applied_groups": list(self.side.applied),
            "median_seconds": self.median,
            "p10_seconds": self.p10,
            "p90_seconds": self.p90,
            "median_seconds_by_run": list(self.by_run),
            "seconds": list(self.seconds),
            "peak_bytes": dict(self.peak_bytes),
            "losses": list(self.losses),
        }


@attrs.frozen
class Comparison:
    """All sides.

    Attributes:
        run_id: the id of the comparison; that of the first run begins with it.
        command: what was run.
        warmup: steps before those that were measured.
        steps: measured steps a run.
        runs: runs a side.
        ranks: how many ranks a run has.
        device: where the parameters are.
        sides: the side with, the side without, and those of an ablation.
        difference: of the losses with and without; None where no losses were seen.
        noise: the same of two runs of one side; None with one run a side, too.
        warnings: what is to be said of the runs.
    """

    run_id: str
    command: tuple[str, ...]
    warmup: int
    steps: int
    runs: int
    ranks: int
    device: str
    sides: tuple[Figures, ...]
    difference: LossDifference | None
    noise: LossDifference | None
    warnings: tuple[str, ...]

    @property
    def with_(self) -> Figures:
        return self.sides[0]

    @property
    def without(self) -> Figures:
        return self.sides[1]

    @property
    def ablated(self) -> tuple[Figures, ...]:
        return self.sides[2:]

    def speedup(self, side: Figures) -> tuple[float, float, float]:
        """How many times as fast as the side without: the median, the least and the most of the
        rounds, each of which compares runs that followed one another."""
        rounds = [b / s for b, s in zip(self.without.by_run, side.by_run, strict=True)]
        return quantile(rounds, 0.5), min(rounds), max(rounds)

    def saved(self, side: Figures) -> float:
        """Seconds a step that are saved by what `side` leaves out: the median of the rounds."""
        rounds = [s - w for s, w in zip(side.by_run, self.with_.by_run, strict=True)]
        return quantile(rounds, 0.5)

    @property
    def spread(self) -> float:
        """How many times as long as the fastest run the slowest run of the same side took."""
        return max(max(side.by_run) / min(side.by_run) for side in self.sides)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return {
            "schema_version": SCHEMA,
            "run_id": self.run_id,
            "command": list(self.command),
            "warmup": self.warmup,
            "steps": self.steps,
            "runs": self.runs,
            "ranks": self.ranks,
            "device": self.device,
            "speedup": self.speedup(self.with_)[0],
            "sides": [{**side.to_dict(), "speedup": self.speedup(side)[0]} for side in self.sides],
            "loss_difference": _fields(self.difference),
            "loss_difference_of_equal_runs": _fields(self.noise),
            "seconds_saved": {side.side.group: self.saved(side) for side in self.ablated},
            "warnings": list(self.warnings),
        }


def quantile(values: Sequence[float], q: float) -> float:
    """The `q` quantile, interpolated between the two values next to it."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def difference(pairs: Sequence[tuple[Run, Run]]) -> LossDifference | None:
    """The largest difference of the losses of two runs, rank by rank and step by step."""
    found = [each for one, other in pairs for each in _differences(one, other)]
    return max(found, key=lambda each: each.absolute, default=None)


def between(runs: Mapping[str, Sequence[Run]]) -> LossDifference | None:
    """That of the runs with and without."""
    return difference([(one, other) for one in runs[WITH] for other in runs[WITHOUT]])


def within(runs: Mapping[str, Sequence[Run]]) -> LossDifference | None:
    """That of the runs of each side."""
    return difference([pair for side in runs.values() for pair in combinations(side, 2)])


def _differences(one: Run, other: Run) -> Iterator[LossDifference]:
    ranks = {rank["rank"]: rank["losses"] for rank in other.ranks}
    for rank in one.ranks:
        pairs = zip(rank["losses"], ranks.get(rank["rank"], ()), strict=False)
        for step, (first, second) in enumerate(pairs, start=1):
            if first is not None and second is not None:
                yield LossDifference(_distance(first, second), step, rank["rank"], (first, second))


def _distance(first: float, second: float) -> float:
    if math.isfinite(first) and math.isfinite(second):
        return abs(first - second)
    same = first == second or (math.isnan(first) and math.isnan(second))
    return 0.0 if same else math.inf


def _fields(value: LossDifference | None) -> dict[str, Any] | None:
    return None if value is None else attrs.asdict(value)
