"""Medians, ratios and differences of losses, from what ranks have measured."""

import math
from pathlib import Path

import pytest

from turbo_physai.compare.figures import Comparison, Figures, between, quantile, within
from turbo_physai.compare.runs import Run
from turbo_physai.compare.sides import Side, ablated, base
from turbo_physai.compare.text import as_markdown, as_text
from turbo_physai.errors import OptimizationConfigError

GROUPS = {
    "compat": {"state": "applied", "compatibility": True},
    "fast": {"state": "applied", "compatibility": False},
    "off": {"state": "skipped", "compatibility": False},
    "other": {"state": "applied", "compatibility": False},
}


def run(*ranks, losses=(1.0,), process=100, cuda=None):
    measured = [
        {
            "rank": rank,
            "seconds": list(seconds),
            "losses": list(losses),
            "peak_bytes": {"process": process + rank, "cuda": cuda, "cuda_reserved": None},
            "groups": GROUPS,
        }
        for rank, seconds in enumerate(ranks)
    ]
    return Run(tuple(measured), Path())


def test_quantiles_lie_between_values():
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0, 2.0], 0.5) == 1.5
    assert quantile([1.0], 0.9) == 1.0


def test_a_step_takes_as_long_as_on_its_slowest_rank():
    assert run([1, 4], [2, 3]).seconds == [2, 4]


def test_the_peak_is_that_of_the_greatest_rank():
    assert run([1], [1]).peak("process") == 101
    assert run([1]).peak("cuda") is None


@pytest.mark.parametrize(
    ("only_compat", "keep", "disabled"),
    [
        (False, (), ("compat", "fast", "off", "other")),
        (True, (), ("fast", "off", "other")),
        (True, ("fast",), ("off", "other")),
    ],
)
def test_the_side_without_keeps_what_it_is_told_to(only_compat, keep, disabled):
    assert base(GROUPS, only_compat=only_compat, keep=keep).disabled == disabled


def test_a_group_to_be_kept_must_exist():
    with pytest.raises(OptimizationConfigError, match="--keep-group: found no; accepted: a Group"):
        base(GROUPS, only_compat=False, keep=["no"])


def test_an_ablation_leaves_out_one_applied_group_at_a_time():
    sides = ablated(GROUPS, base(GROUPS, only_compat=True))
    assert [(side.name, side.disabled, side.group) for side in sides] == [
        ("without fast", ("fast",), "fast"),
        ("without other", ("other",), "other"),
    ]


def test_the_largest_difference_of_losses_is_found_on_any_rank():
    runs = {
        "with": [run([1], [1], losses=(1.0, 2.0)), run([1], [1], losses=(1.0, 2.5))],
        "without": [run([1], [1], losses=(1.25, 2.0)), run([1], [1], losses=(1.25, 2.0))],
    }
    found = between(runs)
    assert (found.absolute, found.step, found.losses) == (0.5, 2, (2.5, 2.0))
    assert within(runs).absolute == 0.5


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (math.nan, math.nan, 0.0),
        (math.inf, math.inf, 0.0),
        (1.0, math.nan, math.inf),
        (-math.inf, math.inf, math.inf),
        (None, 1.0, None),
    ],
)
def test_losses_that_are_no_finite_numbers_are_compared_too(one, other, expected):
    found = between({"with": [run([1], losses=[one])], "without": [run([1], losses=[other])]})
    assert (found and found.absolute) == expected


def comparison(times, **changes):
    """One with a run of one step in each round for each side."""
    names = ("with", "without", "without fast", "without other")
    applied = (("compat", "fast", "other"), ("compat",), ("compat", "other"), ("compat",))
    figures = [
        Figures.of(Side(name, (), ids), [run([second], losses=(1.0,)) for second in seconds])
        for name, ids, seconds in zip(names, applied, times, strict=False)
    ]
    made = {
        "run_id": "r",
        "command": ("python", "train.py"),
        "warmup": 3,
        "steps": 1,
        "runs": len(times[0]),
        "ranks": 1,
        "device": "cpu",
        "sides": tuple(figures),
        "difference": between({"with": [run([1])], "without": [run([1])]}),
        "noise": None,
        "warnings": (),
    }
    return Comparison(**{**made, **changes})


def test_the_ratio_is_the_median_of_rounds_so_that_a_busy_minute_does_not_decide():
    compared = comparison([[1, 1, 10], [2, 2, 20]])
    assert compared.speedup(compared.with_) == (2.0, 2.0, 2.0)
    assert compared.spread == 10
    assert "equal runs differ by a factor of 10.00" in as_text(compared)
    assert "equal runs" not in as_text(comparison([[1, 1.05], [2, 2.1]]))


TEXT = """\
2.00 times as fast, on cpu, 1 rank

            step      p10      p90  speed-up  peak memory  last loss
without  4.000 s  4.000 s  4.000 s     1.00x     0.00 GiB          1
with     2.000 s  2.000 s  2.000 s     2.00x     0.00 GiB          1

Group        step without it  it saves  of a step
fast                 3.000 s   1.000 s      25.0%
other                2.500 s    500 ms      12.5%
sum                            1.500 s      37.5%
all at once          4.000 s   2.000 s      50.0%

without: compat
with: compat, fast, other
without other there is no fast either
losses differ by at most 0 (step 1, rank 0: 1 with, 1 without)
1 steps a run after 3, 1 runs a side, in turns
command: python train.py"""


def test_the_text_has_every_side_and_what_each_group_saves():
    assert as_text(comparison([[2], [4], [3], [2.5]])) == TEXT


def test_no_line_of_the_text_is_wider_than_a_terminal():
    long = comparison([[2], [4]], command=("python",) * 40, warnings=("w " * 200,))
    assert max(map(len, as_text(long).splitlines())) <= 100


def test_a_table_of_markdown_survives_a_pipe_in_a_name():
    compared = comparison([[2], [4], [3]])
    side = compared.sides[2].side
    import attrs

    odd = attrs.evolve(compared.sides[2], side=attrs.evolve(side, name="without a|b"))
    shown = as_markdown(attrs.evolve(compared, sides=(*compared.sides[:2], odd)))
    assert "| a\\|b | 3.000 s | 1.000 s | 25.0% |" in shown


def test_losses_that_nobody_saw_are_said():
    assert "losses: none was seen; --loss names" in as_text(comparison([[2], [4]], difference=None))
