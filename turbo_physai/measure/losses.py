"""The loss of each step, read without waiting for the device.

By default that is what `Tensor.backward` was called on since the step before, summed: with gradient
accumulation, and with several losses, the sum is what the step's gradient belongs to. A loss that a
`GradScaler` has scaled counts as it was before.
"""

from __future__ import annotations

import functools
from types import FrameType
from typing import Any, Protocol

_UNSCALED = "_turbo_physai_unscaled"


class Losses(Protocol):
    """Where losses come from."""

    def install(self) -> None:
        """Begins to look, once torch was imported up to its optimizers."""

    def install_scaler(self) -> None:
        """Begins to look at GradScalers, once their module was imported."""

    def take(self, frame: FrameType | None) -> Any:
        """The loss of the step that has just ended: a tensor, a number, or None if it has none.

        Args:
            frame: the frame that called the optimizer.
        """


class BackwardLosses:
    """What `Tensor.backward` is called on."""

    def __init__(self) -> None:
        self._sum: Any = None
        self._is_running = False

    def install(self) -> None:
        """Replaces `Tensor.backward`."""
        from torch import Tensor

        backward: Any = Tensor.backward

        @functools.wraps(backward)
        def observed(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            # A subclass of Tensor comes past here twice.
            if self._is_running:
                return backward(tensor, *args, **kwargs)
            self._is_running = True
            try:
                self._add(getattr(tensor, _UNSCALED, tensor))
                return backward(tensor, *args, **kwargs)
            finally:
                self._is_running = False

        Tensor.backward = observed  # type: ignore[assignment]

    def install_scaler(self) -> None:
        """Lets tensors that a GradScaler has scaled remember what they were made from."""
        from torch.amp.grad_scaler import GradScaler

        scaler: Any = GradScaler
        scale = scaler.scale

        @functools.wraps(scale)
        def remembered(scaler: Any, outputs: Any) -> Any:
            scaled = scale(scaler, outputs)
            if scaled is not outputs and hasattr(scaled, "backward"):
                setattr(scaled, _UNSCALED, outputs.detach())
            return scaled

        scaler.scale = remembered

    def take(self, frame: FrameType | None) -> Any:
        taken, self._sum = self._sum, None
        return taken

    def _add(self, tensor: Any) -> None:
        if tensor.numel() != 1:
            return  # a vector with a gradient of its own, as at the end of a pipeline's stage
        value = tensor.detach().double().reshape(())
        self._sum = value if self._sum is None else self._sum.to(value.device) + value


class NamedLosses:
    """A variable of the nearest function above the optimizer's step that has one of that name.

    Args:
        name: the variable; behind dots, attributes of it or keys: ``outputs.loss``.
    """

    def __init__(self, name: str) -> None:
        self._variable, *self._path = name.split(".")

    def install(self) -> None:
        pass

    def install_scaler(self) -> None:
        pass

    def take(self, frame: FrameType | None) -> Any:
        while frame is not None and self._variable not in frame.f_locals:
            frame = frame.f_back
        if frame is None:
            return None
        found = frame.f_locals[self._variable]
        for name in self._path:
            found = found.get(name) if isinstance(found, dict) else getattr(found, name, None)
        if isinstance(found, (int, float)):
            return float(found)
        is_scalar = hasattr(found, "detach") and found.numel() == 1
        return found.detach().double().reshape(()) if is_scalar else None
