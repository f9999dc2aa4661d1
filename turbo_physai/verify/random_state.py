"""The state of the random numbers that a call may draw: Python's, numpy's and torch's."""

from __future__ import annotations

import random
import sys
from typing import Any

import attrs

from turbo_physai.verify import libraries


@attrs.frozen(eq=False)
class RandomState:
    """The states of the global generators of the libraries that are loaded."""

    python: Any
    numpy: Any
    torch: Any
    cuda: tuple[Any, ...]

    @classmethod
    def capture(cls) -> RandomState:
        numpy, torch = libraries.numpy(), libraries.torch()
        has_cuda = torch is not None and torch.cuda.is_initialized()
        return cls(
            random.getstate(),
            None if numpy is None else numpy.random.get_state(),
            None if torch is None else torch.get_rng_state(),
            tuple(torch.cuda.get_rng_state_all()) if torch is not None and has_cuda else (),
        )

    def restore(self) -> None:
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)
        if self.torch is not None:
            sys.modules["torch"].set_rng_state(self.torch)
        if self.cuda:
            sys.modules["torch"].cuda.set_rng_state_all(list(self.cuda))
