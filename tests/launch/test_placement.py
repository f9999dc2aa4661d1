"""Where a rank runs: stated by the launcher, done by the rank."""

import os

import pytest

from turbo_physai.errors import OptimizationConfigError
from turbo_physai.launch import placement, topology
from turbo_physai.launch.placement import Placement

NODES = {0: frozenset({0, 1}), 1: frozenset({2, 3})}


@pytest.fixture
def bound(monkeypatch):
    """Binds a local rank of four on a machine with two nodes; returns its CPUs and node."""
    calls = {}
    monkeypatch.setattr(topology, "nodes", lambda: NODES)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: calls.update(cpus=set(cpus)))
    monkeypatch.setattr(placement, "_prefer_memory_of", lambda node: calls.update(node=node))

    def bind(wanted, rank, gpus=(), size=4):
        monkeypatch.setattr(topology, "gpu_nodes", lambda: list(gpus))
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(size))
        calls.clear()
        wanted.bind()
        return dict(calls)

    return bind


def test_it_survives_the_environment():
    wanted = Placement(True, {0: frozenset({1, 2, 5})}, {0: 1, 3: 0})
    environment = {}
    wanted.export(environment)
    assert Placement.of(environment) == wanted
    Placement().export(environment)
    assert environment == {}


def test_a_rank_goes_to_the_node_of_its_gpu(bound):
    assert bound(Placement(True), 0, gpus=[1, 0]) == {"cpus": {2, 3}, "node": 1}
    assert bound(Placement(True), 1, gpus=[1, 0]) == {"cpus": {0, 1}, "node": 0}


def test_ranks_without_gpus_are_spread_over_the_nodes(bound):
    assert [bound(Placement(True), rank)["node"] for rank in range(4)] == [0, 0, 1, 1]
    assert [bound(Placement(True), rank, size=1)["node"] for rank in range(4)] == [0, 1, 0, 1]


def test_what_is_said_of_a_rank_wins(bound):
    wanted = Placement(True, {0: frozenset({3})}, {1: 1})
    assert bound(wanted, 0, gpus=[0, 0]) == {"cpus": {3}}
    assert bound(wanted, 1, gpus=[0, 0]) == {"cpus": {2, 3}, "node": 1}


def test_nothing_is_bound_unless_asked_for(bound, monkeypatch):
    assert bound(Placement(), 0) == {}
    monkeypatch.setattr(topology, "nodes", lambda: {0: NODES[0]})
    assert bound(Placement(True), 0) == {}


def test_a_container_without_cpus_of_the_node_keeps_what_it_has(bound, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert bound(Placement(False, {}, {0: 1}), 0)["cpus"] == {0, 1}


def test_what_cannot_be_done_is_said_and_the_run_goes_on(bound, monkeypatch, caplog):
    def refuse(*_):
        raise OSError("not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    bound(Placement(True), 0)
    assert caplog.messages == ["turbo_physai: local rank 0 is not bound: not permitted"]


@pytest.mark.parametrize("entry", ["x", "0", "0=", "0=x", "-1=0", "²=0", "0=" + "9" * 5000])
@pytest.mark.parametrize("variable", ["TURBO_PHYSAI_RANK_AFFINITY", "TURBO_PHYSAI_RANK_NUMA"])
def test_a_garbled_variable_is_named(variable, entry):
    with pytest.raises(OptimizationConfigError, match=f"{variable}: found '{entry}'; accepted"):
        Placement.of({variable: entry})
