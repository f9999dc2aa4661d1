"""What is to be measured, as it travels through the environment."""

from __future__ import annotations

import json
from typing import Final

import attrs

from turbo_physai.errors import Fault, OptimizationConfigError
from turbo_physai.process import settings

SCHEMA: Final = "turbophysai/measured/v1"
PATTERN: Final = "measured-*.json"


@attrs.frozen
class Request:
    """What to measure in a run.

    Attributes:
        folder: where each rank leaves its file.
        warmup: the optimizer steps before the first one that is measured, at least 1: where the
            first step of a program began cannot be told.
        steps: the optimizer steps that are measured, at least 1; then the program ends.
        loss: a variable of the training loop that holds the loss, such as ``outputs.loss``; empty
            for what `Tensor.backward` is called on.
        profile: whether the steps are profiled, not timed.
    """

    folder: str
    warmup: int
    steps: int
    loss: str = ""
    profile: bool = False

    @property
    def last(self) -> int:
        """The step after which the program ends, counted from 1."""
        return self.warmup + self.steps

    def to_text(self) -> str:
        """The value of the variable."""
        return json.dumps(attrs.asdict(self))

    @classmethod
    def of_environment(cls) -> Request | None:
        """What this process is asked for; None if for nothing.

        Raises:
            OptimizationConfigError: the variable does not hold a request.
        """
        text = settings.MEASURE.text()
        if text is None:
            return None
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError):
            fault = Fault(
                settings.MEASURE.variable, repr(text), "what `turbo-physai compare` puts there"
            )
            raise OptimizationConfigError(fault) from None
