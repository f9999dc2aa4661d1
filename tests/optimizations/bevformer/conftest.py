"""The example's modules, whose formulations are the published ones."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_[!c]*.py", "test_compile.py"]  # all but test_compat.py
else:
    import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

EXAMPLE = Path(__file__).parents[3] / "examples" / "bevformer"


@pytest.fixture(autouse=True)
def _example(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets a test import `projects...` from the example."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("projects", "model"):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def _fresh_numbers() -> None:
    """Other numbers in every run; the seed shows with a failure."""
    if importlib.util.find_spec("torch") is not None:
        print("torch.manual_seed", torch.seed())


@pytest.fixture
def same() -> Callable[..., None]:
    """Compares two ways to call a module: outputs, and the gradients of every parameter and of
    every input that requires one, with the same random numbers drawn."""

    def same(
        module: nn.Module,
        first: Callable[[], Tensor],
        second: Callable[[], Tensor],
        *inputs: Tensor,
        rtol: float = 2e-5,
    ) -> None:
        wanted = [*module.parameters(), *(t for t in inputs if t.requires_grad)]
        seed, results = torch.seed(), []
        for call in (first, second):
            torch.manual_seed(seed)
            out = call()
            torch.manual_seed(seed + 1)
            weights = torch.randn_like(out)
            # The state of the generator shows that both drew equally many numbers.
            results.append([out, *torch.autograd.grad((out * weights).sum(), wanted)])
        for expected, actual in zip(*results, strict=True):
            scale = float(expected.detach().abs().max())
            torch.testing.assert_close(actual, expected, rtol=rtol, atol=rtol * max(scale, 1e-3))

    return same


@pytest.fixture
def disturbed() -> Callable[[nn.Module], nn.Module]:
    """Gives a module parameters that none of its branches is blind to: as initialised, the
    attention weights do not depend on the query."""

    def disturb(module: nn.Module) -> nn.Module:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        return module

    return disturb
