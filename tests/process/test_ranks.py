"""The rank and the run, as each launcher states them."""

import os
import re

import pytest

from turbo_physai.process import ranks


@pytest.fixture
def stated(monkeypatch):
    """Sets what a launcher would, in an environment that says nothing else."""
    for name in list(os.environ):
        if re.match(
            "(LOCAL_|NODE_|GROUP_)?(RANK|WORLD_SIZE)|SLURM|OMPI|TORCHELASTIC|TURBO_PHYSAI", name
        ):
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


@pytest.mark.parametrize("garbled", ["", "x", "-1", "1.0", " 1", "²", "٣", "0x1", "9" * 5000])
def test_what_is_no_number_is_passed_over(stated, garbled):
    stated(RANK=garbled, SLURM_PROCID="x", OMPI_COMM_WORLD_RANK="2", LOCAL_RANK=garbled)
    assert ranks.rank() == 2
    assert ranks.local_rank() is None
    stated(WORLD_SIZE=garbled, LOCAL_WORLD_SIZE=garbled)
    assert found() == (2, 1, None, 1)


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}, 1),
        ({"LOCAL_RANK": "1", "GROUP_RANK": "2", "WORLD_SIZE": "12", "LOCAL_WORLD_SIZE": "4"}, 9),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, 1),
        ({"LOCAL_RANK": "1", "NODE_RANK": "x", "WORLD_SIZE": "2"}, 1),
        # The ranks of a node are told apart even where its own place cannot be told.
        ({"LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "16"}, 1),
        # Programs set it for themselves when nobody has started them as a rank.
        ({"LOCAL_RANK": "1"}, None),
        # What is stated wins.
        ({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2", "RANK": "5"}, 5),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}, 3),
        # Several ranks inside of one task of Slurm.
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, 1),
        ({"LOCAL_RANK": "0", "WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, 0),
    ],
)
def test_a_rank_is_told_from_its_local_one(stated, variables, rank):
    stated(**variables)
    assert ranks.stated_rank() == rank


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"RANK": "0", "LOCAL_RANK": "0"}, True),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, True),
        ({"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2"}, True),
        # A container or machine, a batch script, and a shell on a node have a rank too.
        ({"RANK": "0", "WORLD_SIZE": "2"}, False),
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}, False),
        ({"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "1"}, False),
        ({"LOCAL_RANK": "0"}, False),
        ({}, False),
    ],
)
def test_a_process_knows_whether_it_was_started_as_a_rank(stated, variables, expected):
    stated(**variables)
    assert ranks.is_started_as_rank() is expected


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
    stated(TURBO_PHYSAI_RUN_ID="..")
    assert ranks.run_id() == "_"


def test_spans_are_short():
    assert ranks.spans([3, 0, 1, 2, 8]) == "0-3,8"
    assert ranks.spans([]) == ""
