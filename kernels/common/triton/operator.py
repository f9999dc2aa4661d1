"""How attention operators launch their Triton kernels, forward and backward, and tune them.

The kernels' arguments are, in this order: the result (backward: the sums of the gradient of value,
the gradients of places and weights, with softmax the gradients of the attention weights, the
gradient of the result, the steps of deterministic sums), the inputs' tensors, sizes, constants.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor

from . import launch, sums
from .attention import attention_steps, weight_gradients
from .launch import Size


@dataclass(frozen=True)
class AttentionKernels:
    """An operator whose inputs begin with value, spatial_shapes, level_start_index, places (B, Q,
    H, ..., 2), and weights or logits."""

    name: str
    forward_kernel: Any
    backward_kernel: Any
    prepare: Callable[[Any], list[Tensor]]
    """The inputs' tensors as the kernels address them."""
    sizes: Callable[[Any], tuple[int, ...]]
    constants: Callable[[Any, Size], dict[str, int | bool]]
    has_softmax: bool = True

    def forward(self, inputs: Any, size: Size | None = None) -> Tensor:
        """The operator; the floating-point dtypes are `launch.DTYPES`."""
        launch.check_dtypes(*inputs)
        out: Tensor = inputs.result()
        if out.numel():
            size = size or self.size_for("forward", inputs.value)
            self._launch("forward", inputs, size, [out], self.prepare(inputs))
        return out

    def backward(
        self,
        grad_out: Tensor,
        inputs: Any,
        wanted: Sequence[bool] = (True, True, True),
        *,
        deterministic: bool | None = None,
        size: Size | None = None,
    ) -> tuple[Tensor | None, ...]:
        """The gradients of value, places and weights (or logits).

        Args:
            wanted: without the first, nothing is added to the gradient of value.
            deterministic: give the same bits at every call (None: as torch is set). The gradient of
                `value` is summed in an order that changes from call to call; in 64-bit integers, at
                twice the memory, order does not matter. A step is the largest gradient (times the
                largest weight) times Q * L * P / 2**60 or less. The other gradients have one order
                always.
        """
        if deterministic is None:
            deterministic = torch.are_deterministic_algorithms_enabled()
        value, _, _, places, weights = inputs[:5]
        launch.check_dtypes(grad_out, *inputs)
        size = size or self.size_for("backward", value)
        tensors = self.prepare(inputs)
        pixel_sums = sums.zeros(value, deterministic) if wanted[0] else None
        grad_places, grad_weights = torch.empty_like(tensors[3]), torch.empty_like(tensors[4])
        steps = None
        if grad_out.numel() and weights.numel():
            if deterministic and wanted[0]:
                steps = self._steps(grad_out, weights)
                size = launch.deterministic_size(size)
            outs = [pixel_sums, grad_places, grad_weights]
            outs += [weight_gradients(grad_weights)] if self.has_softmax else []
            outs += [grad_out.contiguous(), steps]
            self._launch("backward", inputs, size, outs, tensors)
        return (
            None if pixel_sums is None else sums.gradient(pixel_sums, steps, value.dtype),
            grad_places.to(places.dtype),
            grad_weights.to(weights.dtype),
        )

    def size_for(self, kernel: str, value: Tensor) -> Size:
        """The size that "forward" or "backward" runs with: a measured one, else the built-in."""
        return launch.size_for(self.name, kernel, value)

    def tune(self, inputs: Any, path: Path | None = None) -> dict[str, dict[Size, float]]:
        """Measure program sizes on these inputs' GPU and save the fastest for later processes.

        Args:
            path: the file to update; by default the one that is read (see `launch`).

        Returns:
            Milliseconds by size, for "forward" and for "backward".

        Raises:
            RuntimeError: the inputs are not on a GPU.
        """
        grad_out = torch.ones_like(inputs.result())
        runs: dict[str, Callable[[Size], object]] = {
            "forward": lambda size: self.forward(inputs, size),
            "backward": lambda size: self.backward(
                grad_out, inputs, deterministic=False, size=size
            ),
        }
        return launch.tune_operator(self.name, inputs.value, runs, path)

    def _launch(
        self,
        kernel: str,
        inputs: Any,
        size: Size,
        outs: Sequence[Tensor | None],
        tensors: list[Tensor],
    ) -> None:
        batch, queries, heads = inputs[3].shape[:3]
        run = self.forward_kernel if kernel == "forward" else self.backward_kernel
        with launch.device_of(inputs.value):
            run[(batch * heads * triton.cdiv(queries, size.rows),)](
                *outs,
                *tensors,
                *self.sizes(inputs),
                **self.constants(inputs, size),
                **size.tile(kernel, inputs.value),
                **size.options(),
            )

    def _steps(self, grad_out: Tensor, weights: Tensor) -> Tensor:
        if self.has_softmax:
            return attention_steps(grad_out, weights)
        # A pixel gets at most one term a sample: a gradient, a weight, a factor of at most 1.
        peak = grad_out.abs().amax().float() * weights.abs().amax().float()
        return sums.steps(peak, weights[0, :, 0].numel())
