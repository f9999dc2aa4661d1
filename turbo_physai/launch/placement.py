"""Where the ranks of this machine run: CPUs, and the memory of a NUMA node.

The launcher states it in variables; each rank binds itself at its start, the only moment at which
its local rank is known and no thread or memory of it lies elsewhere yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping
from typing import TypeVar

import attrs

from turbo_physai.errors import Fault, OptimizationConfigError
from turbo_physai.launch import topology
from turbo_physai.process import ranks, settings
from turbo_physai.process.messages import warn

T = TypeVar("T")


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
        """What `environment` states.

        Raises:
            OptimizationConfigError: a variable does not read as it was exported.
        """
        return cls(
            settings.NUMA.flag(environment),
            _entries(settings.RANK_AFFINITY, environment, topology.parse_cpus, "0=0-7,16;1=8-15"),
            _entries(settings.RANK_NUMA, environment, topology.number, "0=0;1=1"),
        )

    def export(self, environment: MutableMapping[str, str]) -> None:
        """States it in `environment`, in place of what stands there."""
        cpus = {rank: ranks.spans(cpus) for rank, cpus in self.cpus.items()}
        texts = {
            settings.NUMA: "1" if self.numa else "",
            settings.RANK_AFFINITY: ";".join(f"{rank}={text}" for rank, text in cpus.items()),
            settings.RANK_NUMA: ";".join(f"{rank}={node}" for rank, node in self.nodes.items()),
        }
        for setting, text in texts.items():
            environment.pop(setting.variable, None)
            if text:
                environment[setting.variable] = text

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

        What cannot be done is a warning: a slower run is better than none.
        """
        rank = ranks.local_rank()
        if rank is None:
            return
        try:
            node = self._node(rank)
            if rank in self.cpus:
                os.sched_setaffinity(0, self.cpus[rank])
            elif node is not None:
                # Of a whole node only what a container or job scheduler has granted is there.
                allowed = os.sched_getaffinity(0)
                os.sched_setaffinity(0, allowed & topology.nodes()[node] or allowed)
            if node is not None:
                _prefer_memory_of(node)
        except (OSError, ValueError) as error:
            warn(f"local rank {rank} is not bound: {error}")

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


def _entries(
    setting: settings.Setting,
    environment: Mapping[str, str],
    parse: Callable[[str], T],
    example: str,
) -> dict[int, T]:
    text = setting.text(environment) or ""
    pairs = (entry.partition("=") for entry in text.split(";") if entry)
    try:
        return {topology.number(rank): parse(value) for rank, _, value in pairs}
    except ValueError:
        raise OptimizationConfigError(
            Fault(setting.variable, repr(text), f"entries such as {example}")
        ) from None


def _prefer_memory_of(node: int) -> None:
    """Lets this process take its memory from `node` as long as there is any, where libnuma is."""
    import ctypes

    try:
        numa = ctypes.CDLL("libnuma.so.1")
    except OSError:
        return
    if numa.numa_available() >= 0:
        numa.numa_set_preferred(ctypes.c_int(node))
