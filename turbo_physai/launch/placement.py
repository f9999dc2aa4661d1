"""Where the ranks of this machine run: CPUs, and the memory of a NUMA node.

The launcher states it in variables; each rank binds itself at its start, the only moment at which
its local rank is known and no thread or memory of it lies elsewhere yet.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import Final

import attrs

from turbo_physai.errors import Fault
from turbo_physai.launch import topology
from turbo_physai.process import ranks

NUMA_VARIABLE: Final = "TURBO_PHYSAI_NUMA"
AFFINITY_VARIABLE: Final = "TURBO_PHYSAI_RANK_AFFINITY"
NODES_VARIABLE: Final = "TURBO_PHYSAI_RANK_NUMA"


@attrs.frozen
class Placement:
    """What was asked for.

    Attributes:
        numa: whether ranks of which nothing else is said go to the NUMA node of their GPU, or are
            spread over the nodes where there are no GPUs.
        cpus: the CPUs of a local rank.
        nodes: the NUMA node of a local rank.
    """

    numa: bool = False
    cpus: Mapping[int, frozenset[int]] = attrs.field(factory=dict)
    nodes: Mapping[int, int] = attrs.field(factory=dict)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Placement:
        cpus = _entries(environment.get(AFFINITY_VARIABLE, ""))
        nodes = _entries(environment.get(NODES_VARIABLE, ""))
        return cls(
            environment.get(NUMA_VARIABLE) == "1",
            {rank: topology.parse_cpus(text) for rank, text in cpus.items()},
            {rank: int(text) for rank, text in nodes.items()},
        )

    def export(self, environment: MutableMapping[str, str]) -> None:
        """States it in `environment`, in place of what stands there."""
        cpus = {rank: ranks.spans(cpus) for rank, cpus in self.cpus.items()}
        texts = {
            NUMA_VARIABLE: "1" if self.numa else "",
            AFFINITY_VARIABLE: ";".join(f"{rank}={text}" for rank, text in cpus.items()),
            NODES_VARIABLE: ";".join(f"{rank}={node}" for rank, node in self.nodes.items()),
        }
        for name, text in texts.items():
            environment.pop(name, None)
            if text:
                environment[name] = text

    def faults(self) -> list[Fault]:
        """What cannot be had on this machine."""
        allowed, known = frozenset(os.sched_getaffinity(0)), topology.nodes()
        faults = [
            Fault(
                "--set-rank-affinity",
                f"CPUs {ranks.spans(cpus - allowed)} for rank {rank}",
                f"CPUs of this process: {ranks.spans(allowed)}",
            )
            for rank, cpus in self.cpus.items()
            if cpus - allowed
        ]
        listed = ", ".join(map(str, known)) or "none, this machine states no NUMA nodes"
        faults += [
            Fault("--set-rank-numa", f"node {node} for rank {rank}", f"a NUMA node: {listed}")
            for rank, node in self.nodes.items()
            if node not in known
        ]
        return faults

    def bind(self) -> None:
        """Binds this process, if it is a rank and anything is asked for it.

        What cannot be done is said on stderr: a slower run is better than none.
        """
        rank = ranks.local_rank()
        if rank is None:
            return
        node = self._node(rank)
        try:
            if rank in self.cpus:
                os.sched_setaffinity(0, self.cpus[rank])
            elif node is not None:
                # Of a whole node only what a container or job scheduler has granted is there.
                allowed = os.sched_getaffinity(0)
                os.sched_setaffinity(0, allowed & topology.nodes()[node] or allowed)
            if node is not None:
                _prefer_memory_of(node)
        except OSError as error:
            print(f"turbo_physai: local rank {rank} is not bound: {error}", file=sys.stderr)

    def _node(self, rank: int) -> int | None:
        if rank in self.nodes:
            return self.nodes[rank]
        known = list(topology.nodes())
        if not self.numa or rank in self.cpus or len(known) < 2:
            return None
        gpus = topology.gpu_nodes()
        if rank < len(gpus) and gpus[rank] in known:
            return gpus[rank]
        size = ranks.local_world_size()
        return known[rank * len(known) // size if rank < size else rank % len(known)]


def _entries(text: str) -> dict[int, str]:
    pairs = (entry.partition("=") for entry in text.split(";") if entry)
    return {int(rank): value for rank, _, value in pairs}


def _prefer_memory_of(node: int) -> None:
    """Lets this process take its memory from `node` as long as there is any, where libnuma is."""
    try:
        numa = ctypes.CDLL("libnuma.so.1")
    except OSError:
        return
    if numa.numa_available() >= 0:
        numa.numa_set_preferred(ctypes.c_int(node))
