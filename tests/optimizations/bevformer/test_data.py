"""Batches are loaded by the workers, and into the memory, that the options ask for."""

import multiprocessing

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from turbo_physai.optimizations.bevformer.data import PinnableBatch, build_dataloader
from turbo_physai.optimizations.bevformer.options import DataOptions


class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"x": torch.tensor([float(index)])}


class DataContainer:
    """As mmcv's: tensors behind an attribute that torch does not look at."""

    def __init__(self, data, cpu_only=False):
        self._data, self.cpu_only = data, cpu_only


def collate(samples):
    stacked = torch.stack([sample["x"] for sample in samples])
    return {
        "img": DataContainer([stacked]),
        "metas": DataContainer([["a"]], cpu_only=True),
        "plain": stacked,
    }


def of_the_plugin(dataset, samples_per_gpu, workers_per_gpu, num_gpus=1, dist=True, **kwargs):
    return DataLoader(
        dataset,
        batch_size=samples_per_gpu,
        num_workers=workers_per_gpu,
        collate_fn=collate,
        pin_memory=False,
        **kwargs,
    )


def build(options, workers=1):
    built = build_dataloader(of_the_plugin, DataOptions(**options))
    return built(Numbers(), 2, workers, dist=False)


def numbers(loader):
    return [batch["plain"].flatten().tolist() for batch in loader]


def test_without_options_it_is_the_plugins_own():
    loader = build({})
    assert loader.multiprocessing_context is None
    assert numbers(loader) == [[0.0, 1.0], [2.0, 3.0]]


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_workers_start_as_asked_and_hold_as_many_batches(method):
    loader = build({"start_method": method, "prefetch_factor": 3})
    assert loader.multiprocessing_context.get_start_method() == method
    assert loader.prefetch_factor == 3
    assert numbers(loader) == [[0.0, 1.0], [2.0, 3.0]]


def test_without_workers_there_is_nothing_to_start():
    assert numbers(build({"start_method": "spawn", "prefetch_factor": 3}, workers=0))


def test_what_the_caller_says_goes_before_the_options():
    built = build_dataloader(of_the_plugin, DataOptions(prefetch_factor=3))
    assert built(Numbers(), 2, 1, prefetch_factor=5).prefetch_factor == 5


def test_tensors_in_containers_are_pinned_and_what_stays_on_the_cpu_is_not(monkeypatch):
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(self) or self + 100)
    loader = build({"pin_memory": True}, workers=0)
    assert loader.pin_memory is True
    batch = next(iter(loader))  # without a GPU, torch's own loop leaves it as it is
    assert type(batch) is PinnableBatch
    done = batch.pin_memory()
    assert type(done) is dict
    assert done["img"]._data[0].flatten().tolist() == [100.0, 101.0]
    assert done["plain"].flatten().tolist() == [100.0, 101.0]
    assert done["metas"]._data == [["a"]]
    assert len(pinned) == 2


def test_nothing_is_pinned_without_a_gpu_unless_asked_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert build({}).pin_memory is False
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert build({}).pin_memory is True
    assert build({"pin_memory": False}).pin_memory is False
