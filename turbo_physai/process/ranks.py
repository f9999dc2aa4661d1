"""The rank of this process and the launch that it belongs to, as its launcher states them."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable
from typing import Final

RUN_ID_VARIABLE: Final = "TURBO_PHYSAI_RUN_ID"
# Made up by the first process of a launch for those below it; not for users to set.
LAUNCH_VARIABLE: Final = "TURBO_PHYSAI_LAUNCH_ID"

# torchrun and Ray Train, Slurm's srun, Open MPI's mpirun.
_RANK: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
_LOCAL_RANK: Final = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
_WORLD_SIZE: Final = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
_LOCAL_WORLD_SIZE: Final = (
    "LOCAL_WORLD_SIZE",
    "SLURM_NTASKS_PER_NODE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
)


def rank() -> int:
    """The rank now: launchers inside a process set it late, so ask when it is needed."""
    return stated_rank() or 0


def stated_rank() -> int | None:
    """The rank now; None if no launcher has stated one."""
    return _first(_RANK)


def local_rank() -> int | None:
    """The rank among the processes of this machine; None if no launcher has stated one."""
    return _first(_LOCAL_RANK)


def world_size() -> int:
    return _first(_WORLD_SIZE) or 1


def local_world_size() -> int:
    return _first(_LOCAL_WORLD_SIZE) or 1


def _first(names: tuple[str, ...]) -> int | None:
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdecimal()), None)


def run_id() -> str:
    """The id of the launch, one for all of its ranks.

    What TURBO_PHYSAI_RUN_ID states; else what the launcher has told the ranks of all machines, that
    is torchrun's id of the rendezvous or Slurm's job and step; else what the first process of the
    launch on this machine made up; else a new one.
    """
    stated = os.environ.get(RUN_ID_VARIABLE) or _of_launcher() or os.environ.get(LAUNCH_VARIABLE)
    return re.sub(r"[^\w.-]", "_", stated) if stated else new_run_id()


def share_run_id() -> None:
    """Gives the processes that this one starts one id, unless they have one."""
    os.environ.setdefault(LAUNCH_VARIABLE, new_run_id())


def new_run_id() -> str:
    """An id for a launch: sorts by time and is unique without asking anyone."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def _of_launcher() -> str | None:
    rendezvous = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if rendezvous not in ("", "none"):  # "none" is torchrun's default, the same for all launches
        return f"torchrun-{rendezvous}"
    job, step = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_STEP_ID")
    return f"slurm-{job}.{step}" if job and step else None


def spans(numbers: Iterable[int]) -> str:
    """Numbers in the short form ``0-3,8``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)
