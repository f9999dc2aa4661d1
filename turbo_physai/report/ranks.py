"""The rank of this process, as its launcher states it."""

from __future__ import annotations

import os
from typing import Final

# torchrun and Ray Train, Slurm's srun, Open MPI's mpirun.
_RANK: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
_WORLD_SIZE: Final = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")


def rank() -> int:
    """The rank now: launchers inside a process set it late, so ask when it is needed."""
    return _first(_RANK, 0)


def world_size() -> int:
    return _first(_WORLD_SIZE, 1)


def _first(names: tuple[str, ...], default: int) -> int:
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdecimal()), default)
