"""Fixtures of the kernels' tests: random numbers, backends, and runs under Triton's interpreter."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

SUPPORT = Path(__file__).parent / "support"
sys.path.insert(0, str(SUPPORT))
pytest.register_assert_rewrite("kernel_checks")

import kernel_cases  # noqa: E402
from kernel_checks import Backend  # noqa: E402


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest) -> None:
    """Random numbers that depend on the test's name, and on `--torch-seed`."""
    name = request.node.nodeid.rpartition("/")[2]
    seed = (zlib.crc32(name.encode()) + request.config.getoption("--torch-seed")) % 2**32
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--kernel-backend")
        metafunc.parametrize("backend", [chosen] if chosen else ["cpu", "torch"], indirect=True)


@pytest.fixture
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """A backend of every operator; fresh memory is full of NaN: what is not written is seen."""
    backend = Backend(request.param)
    if reason := backend.why_not():
        pytest.skip(reason)

    def poison(allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def allocate_nan(*args: object, **kwargs: object) -> Tensor:
            tensor = allocate(*args, **kwargs)
            if tensor.dtype == torch.bool or not tensor.is_floating_point():
                return tensor.fill_(1)
            return tensor.fill_(torch.nan)

        return allocate_nan

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poison(getattr(owner, name)))
    return backend


@pytest.fixture(params=kernel_cases.ATTENTION, ids=lambda one: one.name)
def attention(request: pytest.FixtureRequest) -> kernel_cases.Operator:
    """Each of the attention operators."""
    return request.param


@pytest.fixture(params=kernel_cases.ALL, ids=lambda one: one.name)
def operator(request: pytest.FixtureRequest) -> kernel_cases.Operator:
    """Each of the operators."""
    return request.param


@pytest.fixture
def run_interpreted() -> Callable[..., None]:
    """Runs tests in a process of its own on the Triton backend: Triton decides when it is imported
    whether it interprets (on the CPU) or compiles."""

    def run(tests: Path, *options: str, interpret: bool = True) -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        run = subprocess.run(
            [*command, "--kernel-backend", "triton", *options, str(tests)],
            env={**os.environ, "TRITON_INTERPRET": "1" if interpret else "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr

    return run
