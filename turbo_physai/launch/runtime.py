"""What a launch is given besides the optimizations: variables, and where its ranks run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import attrs

from turbo_physai.config.runtime import is_variable_name, load_runtime, select_runtime
from turbo_physai.errors import Fault, OptimizationConfigError
from turbo_physai.launch import topology
from turbo_physai.launch.placement import Placement
from turbo_physai.process import settings
from turbo_physai.process.messages import warn

T = TypeVar("T")


@attrs.frozen
class Runtime:
    """What was asked for, as it stands on the command line.

    Attributes:
        config: the path of a RuntimeConfig.
        model: the name of the model whose packaged RuntimeConfig is used if `config` is None.
        numa: what overrides the RuntimeConfig's setting, if anything.
        variables: entries NAME=VALUE.
        rank_affinity: entries RANK=CPUS.
        rank_numa: entries RANK=NODE.
    """

    config: str | None = None
    model: str | None = None
    numa: bool | None = None
    variables: tuple[str, ...] = ()
    rank_affinity: tuple[str, ...] = ()
    rank_numa: tuple[str, ...] = ()

    def apply(self) -> None:
        """Changes the environment of this process.

        Raises:
            OptimizationConfigNotFoundError, OptimizationConfigError: with all that is wrong.
        """
        numa = self.numa
        path = select_runtime(self.config, self.model)
        if path is not None:
            config = load_runtime(path)
            config.apply(os.environ)
            os.environ[settings.RUNTIME_CONFIG.variable] = str(path)
            numa = config.numa if numa is None else numa
        faults = _set_variables(self.variables)
        placement = self._placement(numa, faults)
        faults += placement.faults()
        if faults:
            raise OptimizationConfigError(*faults)
        placement.export(os.environ)
        if numa and len(topology.nodes()) < 2:
            warn("NUMA: one node only, so no rank is bound")

    def _placement(self, numa: bool | None, faults: list[Fault]) -> Placement:
        """What an outer launcher has stated, with what is asked for here over it."""
        outer = Placement.of(os.environ)
        cpus = _of_ranks(
            "--set-rank-affinity",
            self.rank_affinity,
            topology.parse_cpus,
            "RANK=CPUS, such as 0=0-7,16",
            faults,
        )
        nodes = _of_ranks(
            "--set-rank-numa", self.rank_numa, topology.number, "RANK=NODE, such as 0=1", faults
        )
        return Placement(
            outer.numa if numa is None else numa,
            {**outer.cpus, **cpus},
            {**outer.nodes, **nodes},
        )


def _set_variables(entries: Sequence[str]) -> list[Fault]:
    faults = []
    for entry in entries:
        name, equals, value = entry.partition("=")
        if equals and is_variable_name(name):
            os.environ[name] = value
        else:
            faults.append(Fault("--set", repr(entry), "NAME=VALUE"))
    return faults


def _of_ranks(
    option: str,
    entries: Sequence[str],
    parse: Callable[[str], T],
    accepted: str,
    faults: list[Fault],
) -> dict[int, T]:
    found = {}
    for entry in entries:
        rank, _, text = entry.partition("=")
        try:
            found[topology.number(rank)] = parse(text)
        except ValueError:
            faults.append(Fault(option, repr(entry), accepted))
    return found
