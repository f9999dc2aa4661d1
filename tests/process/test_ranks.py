"""The rank and the run, as each launcher states them."""

import os
import re

import pytest

from turbo_physai.process import ranks


@pytest.fixture
def stated(monkeypatch):
    """Sets what a launcher would, in an environment that says nothing else."""
    for name in list(os.environ):
        if re.match("(LOCAL_)?(RANK|WORLD_SIZE)|SLURM|OMPI|TORCHELASTIC|TURBO_PHYSAI", name):
            monkeypatch.delenv(name)
    return lambda **variables: [monkeypatch.setenv(*item) for item in variables.items()]


def found():
    return ranks.rank(), ranks.world_size(), ranks.local_rank(), ranks.local_world_size()


def test_a_process_without_a_launcher_is_rank_0_of_1(stated):
    assert found() == (0, 1, None, 1)
    assert ranks.stated_rank() is None


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"},
        {
            "SLURM_PROCID": "5",
            "SLURM_NTASKS": "8",
            "SLURM_LOCALID": "1",
            "SLURM_NTASKS_PER_NODE": "4",
        },
        {
            "OMPI_COMM_WORLD_RANK": "5",
            "OMPI_COMM_WORLD_SIZE": "8",
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
        },
    ],
    ids=lambda variables: min(variables),
)
def test_each_launcher_is_understood(stated, variables):
    stated(**variables)
    assert found() == (5, 8, 1, 4)


def test_torchrun_under_slurm_wins(stated):
    stated(SLURM_PROCID="1", SLURM_NTASKS="2", RANK="9", WORLD_SIZE="16")
    assert found()[:2] == (9, 16)


def test_what_is_no_number_is_passed_over(stated):
    stated(RANK="", SLURM_PROCID="x", OMPI_COMM_WORLD_RANK="2")
    assert ranks.rank() == 2


def test_a_run_has_the_id_that_was_stated(stated):
    assert ranks.run_id() != ranks.run_id()
    ranks.share_run_id()
    assert ranks.run_id() == ranks.run_id() == os.environ.pop("TURBO_PHYSAI_LAUNCH_ID")
    stated(SLURM_JOB_ID="7")  # a batch script may hold many launches
    assert ranks.run_id() != ranks.run_id()
    stated(SLURM_STEP_ID="0")
    assert ranks.run_id() == "slurm-7.0"
    stated(TORCHELASTIC_RUN_ID="job")
    assert ranks.run_id() == "torchrun-job"
    stated(TURBO_PHYSAI_RUN_ID="../mine")
    assert ranks.run_id() == ".._mine"


def test_spans_are_short():
    assert ranks.spans([3, 0, 1, 2, 8]) == "0-3,8"
    assert ranks.spans([]) == ""
