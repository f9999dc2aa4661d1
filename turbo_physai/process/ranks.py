"""The rank of this process and the launch that it belongs to, as its launcher states them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from typing import Final

from turbo_physai.process import settings

# torchrun and Ray Train, Slurm's srun, Open MPI's mpirun.
_RANK: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
_LOCAL_RANK: Final = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
_NODE_RANK: Final = ("NODE_RANK", "GROUP_RANK")
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
    local, task = _first(("LOCAL_RANK",)), _first(("SLURM_LOCALID",))
    # Lightning starts ranks inside of one Slurm task, whose number is none of theirs.
    names = ("RANK",) if None not in (local, task) and local != task else _RANK
    stated = _first(names)
    return _within_node(local) if stated is None else stated


def local_rank() -> int | None:
    """The rank among the processes of this machine; None if no launcher has stated one."""
    return _first(_LOCAL_RANK)


def world_size() -> int:
    return _first(_WORLD_SIZE) or 1


def local_world_size() -> int:
    return _first(_LOCAL_WORLD_SIZE) or 1


def is_started_as_rank() -> bool:
    """Whether a launcher has started this very process as one of several.

    A rank alone does not tell: it may be that of a machine, for every command in a container, or
    that of a batch job, for every command in its script.
    """
    if os.environ.get("SLURM_STEP_ID") and (_first(("SLURM_NTASKS",)) or 1) > 1:
        return True
    names = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    return stated_rank() is not None and _first(names) is not None


def _within_node(local: int | None) -> int | None:
    """The rank where a launcher states the local one alone, as Lightning's own does.

    How many ranks a node has is not always said. The local rank then at least tells the ranks of
    one node apart.
    """
    if local is None or _first(("WORLD_SIZE",)) is None:
        return None  # programs set a local rank alone for themselves, whoever starts them
    node, size = _first(_NODE_RANK), _first(("LOCAL_WORLD_SIZE",))
    return node * size + local if node and size else local


def _first(names: tuple[str, ...]) -> int | None:
    """The first of the variables that holds a number as launchers write it."""
    values = (os.environ.get(name, "") for name in names)
    # Short and ASCII: int() raises for thousands of digits.
    stated = (v for v in values if v.isdecimal() and v.isascii() and len(v) < 10)
    return next(map(int, stated), None)


def run_id() -> str:
    """The id of the launch, one for all of its ranks.

    What TURBO_PHYSAI_RUN_ID states; else what the launcher has told the ranks of all machines, that
    is torchrun's id of the rendezvous or Slurm's job and step; else what the first process of the
    launch on this machine made up; else a new one.
    """
    stated = settings.RUN_ID.text() or _of_launcher() or settings.LAUNCH_ID.text()
    if not stated:
        return new_run_id()
    # It names a folder, so it must not mean the one above.
    return re.sub(r"[^\w.-]|^\.+$", "_", stated)


def share_run_id() -> None:
    """Gives the processes that this one starts one id, unless they have one."""
    os.environ.setdefault(settings.LAUNCH_ID.variable, new_run_id())


def new_run_id() -> str:
    """An id for a launch: sorts by time and is unique without asking anyone."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"


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
