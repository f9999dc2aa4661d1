"""The processors of this machine: its NUMA nodes, and the node that each GPU is attached to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_NODES: Final = "sys/devices/system/node"
_PCI: Final = "sys/bus/pci/devices"
_GPUS: Final = "proc/driver/nvidia/gpus"


def nodes(root: Path = Path("/")) -> dict[int, frozenset[int]]:
    """The CPUs of each NUMA node that has any."""
    found = {}
    for folder in (root / _NODES).glob("node[0-9]*"):
        cpus = (folder / "cpulist").read_text().strip()
        if cpus:  # a node may hold memory alone
            found[int(folder.name[4:])] = parse_cpus(cpus)
    return dict(sorted(found.items()))


def gpu_nodes(root: Path = Path("/")) -> list[int]:
    """The NUMA node of each visible NVIDIA GPU, in the order in which CUDA numbers equal GPUs: by
    PCI address. Empty where that cannot be told."""
    gpus = (root / _GPUS).iterdir() if (root / _GPUS).is_dir() else ()
    found = []
    for address in sorted(gpu.name.lower() for gpu in gpus):
        file = root / _PCI / address / "numa_node"
        found.append(int(file.read_text()) if file.is_file() else -1)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        try:
            found = [found[number(index.strip())] for index in visible.split(",")]
        except (ValueError, IndexError):
            return []
    return [] if -1 in found else found


def parse_cpus(text: str) -> frozenset[int]:
    """The CPUs in a list such as ``0-3,8``.

    Raises:
        ValueError: it is no such list.
    """
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        cpus.update(range(number(first), number(last if dash else first) + 1))
    if not cpus:
        raise ValueError(f"no CPU in {text!r}")
    return frozenset(cpus)


def number(text: str) -> int:
    """A number as ranks, CPUs and nodes have them: not negative.

    Raises:
        ValueError: it is none.
    """
    # No machine has a million of anything, and a range that long would never end.
    if not (text.isascii() and text.isdecimal() and len(text) <= 6):
        raise ValueError(f"not a number: {text!r}")
    return int(text)
