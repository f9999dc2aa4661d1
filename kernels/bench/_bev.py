"""What the benchmarks of BEVFormer's two attentions share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.linear import linear
from .harness import Case, Step


def apply_linear(layer: nn.Linear, x: Tensor, *, fused: bool) -> Tensor:
    """`layer(x)`; on the fused side by the faster of torch's libraries, as the Groups have it."""
    function = linear if fused else F.linear
    out: Tensor = function(x, layer.weight, layer.bias)
    return out


def passes(
    name: str,
    operators: dict[str, Callable[..., Tensor]],
    inputs: Sequence[Tensor],
    wanted: Sequence[Tensor],
    floors_us: tuple[float | None, float | None],
) -> Iterator[Case]:
    """A forward and a forward+backward case, with gradients for `wanted`."""

    def forward(operator: Callable[..., Tensor]) -> Step:
        def step() -> None:
            with torch.no_grad():
                operator(*inputs)

        return step

    def forward_backward(operator: Callable[..., Tensor], grad: Tensor) -> Step:
        def step() -> None:
            torch.autograd.grad(operator(*inputs), wanted, grad)

        return step

    yield Case(name, "forward", {k: forward(f) for k, f in operators.items()}, floors_us[0])
    with torch.no_grad():
        grad = torch.randn_like(operators["turbo_physai"](*inputs))
    steps = {k: forward_backward(f, grad) for k, f in operators.items()}
    yield Case(name, "forward+backward", steps, floors_us[1])


def floors_us(
    device: torch.device, read: Sequence[Tensor], written: Tensor, corners: float
) -> tuple[float | None, float | None]:
    """What memory allows at best: every tensor moved once, every corner read from L1.

    An H200: 4.3 TB/s copy, 132 multiprocessors that load 128 bytes a cycle at 1.98 GHz. The
    additions into the gradient of the maps come on top; their rate is not known.

    Args:
        read: the inputs.
        written: the result.
        corners: bytes of all the pixels that are read, each as often as a sample reads it.
    """
    if device.type != "cuda" or "H200" not in torch.cuda.get_device_name(device):
        return None, None
    moved = sum(t.numel() * t.element_size() for t in read)
    result = written.numel() * written.element_size()
    gather = corners / (132 * 128 * 1.98e9)
    forward = max((moved + result) / 4.3e12, gather)
    backward = max((2 * moved + result) / 4.3e12, gather)
    return forward * 1e6, (forward + backward) * 1e6


def bird_grid(height: int, width: int) -> Tensor:
    """(height * width, 2): the middles of a map's cells as (x, y), 0 to 1."""
    y, x = torch.meshgrid(
        (torch.arange(height) + 0.5) / height, (torch.arange(width) + 0.5) / width, indexing="ij"
    )
    return torch.stack((x, y), -1).flatten(0, 1)
