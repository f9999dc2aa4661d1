"""The machine as the kernel describes it: NUMA nodes, GPUs, lists of CPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_physai.launch import topology
from turbo_physai.process.ranks import spans


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Two nodes with four CPUs each, one with memory alone, and four GPUs that cross over."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    files = {"sys/devices/system/node/online": "0-2"}
    for node, cpus in enumerate(["0-1,4-5", "2-3,6-7", ""]):
        files[f"sys/devices/system/node/node{node}/cpulist"] = cpus
    for address, node in {"0000:0A:00.0": 1, "0000:0B:00.0": 1, "0001:01:00.0": 0}.items():
        files[f"sys/bus/pci/devices/{address.lower()}/numa_node"] = str(node)
        files[f"proc/driver/nvidia/gpus/{address}/information"] = ""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    return tmp_path


def test_nodes_are_those_with_cpus(machine, tmp_path):
    assert topology.nodes(machine) == {0: {0, 1, 4, 5}, 1: {2, 3, 6, 7}}
    assert topology.nodes(tmp_path / "elsewhere") == {}


def test_gpus_stand_in_the_order_of_their_addresses(machine, monkeypatch):
    assert topology.gpu_nodes(machine) == [1, 1, 0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 0")
    assert topology.gpu_nodes(machine) == [0, 1]


@pytest.mark.parametrize("visible", ["GPU-8932f937", "3", "", "0,-1", "²", "9" * 5000])
def test_gpus_that_cannot_be_told_are_not_guessed(machine, monkeypatch, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert topology.gpu_nodes(machine) == []


def test_a_gpu_without_a_node_makes_all_unknown(machine):
    (machine / "sys/bus/pci/devices/0000:0b:00.0/numa_node").write_text("-1\n")
    assert topology.gpu_nodes(machine) == []


@given(st.frozensets(st.integers(0, 300), min_size=1))
def test_a_list_of_cpus_reads_back(cpus):
    assert topology.parse_cpus(spans(cpus)) == cpus


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "1 2", "²", "0-99999999999"])
def test_what_is_no_list_of_cpus_is_refused(text):
    with pytest.raises(ValueError, match="no"):
        topology.parse_cpus(text)
