"""How the tests of the kernels run a backend, and compare it with an operator's definition."""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch
from torch import Tensor
from turbo_physai.kernels import _backends
from turbo_physai.kernels._operator import Operator

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


class Backend:
    """One backend, by the modules that compute: what dispatch chooses is tested elsewhere."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_interpreted = name == "triton" and INTERPRETED
        self.device = "cuda" if name == "triton" and not INTERPRETED else "cpu"
        self.floats = FLOATS[:3] if name == "triton" else FLOATS

    def why_not(self) -> str | None:
        """Why it cannot run here."""
        if self.is_interpreted:
            return None
        kinds = {kind.name: kind for kind in _backends.KINDS}
        return kinds[self.name].why_not()

    def module(self, inputs: Any) -> Any:
        """Of the operator that these are the inputs of."""
        return importlib.import_module(f"{type(inputs).__module__}._{self.name}")

    def forward(self, inputs: Any) -> Any:
        return self.module(inputs).forward(inputs)

    def backward(self, grad_out: Tensor, inputs: Any, *wanted: Any, **options: Any) -> Any:
        return self.module(inputs).backward(grad_out, inputs, *wanted, **options)


def differentiable(inputs: Any) -> tuple[str, ...]:
    """The inputs whose gradients the backends compute."""
    name = type(inputs).__module__.rpartition(".")[2]
    return tuple(
        field for field in Operator.all[name].differentiable if getattr(inputs, field) is not None
    )


def expected(inputs: Any, grad_out: Tensor, *more: str) -> list[Tensor]:
    """Output and gradients by the definition, in float64, from the inputs as they were rounded.

    Args:
        more: names of inputs whose gradients no backend computes; None passes.
    """
    reference = importlib.import_module(f"{type(inputs).__module__}.reference")
    wide = type(inputs)(
        *(
            value.detach().double()
            if isinstance(value, Tensor) and value.is_floating_point()
            else value
            for value in inputs
        )
    )
    names = [*differentiable(inputs), *(n for n in more if getattr(inputs, n) is not None)]
    wanted = [getattr(wide, name).requires_grad_() for name in names]
    out = reference.forward(wide)
    return [out.detach(), *torch.autograd.grad(out, wanted, grad_out.double())]


def grad_like(inputs: Any) -> Tensor:
    """A random gradient of the result."""
    return torch.randn(inputs.result().shape).to(inputs.result())


def close(actual: Tensor, wanted: Tensor, sums: torch.dtype = torch.float32) -> None:
    """Equal but for the rounding of the result to its dtype and of the sums to theirs."""
    rounding = {torch.float64: 1e-12, torch.float32: 5e-6}.get(sums) or 2 * torch.finfo(sums).eps
    info = torch.finfo(actual.dtype)
    largest = wanted.abs().max().item() if wanted.numel() else 0.0
    atol = rounding * max(1.0, largest) + info.smallest_normal * info.eps
    # The interpreter cuts bfloat16 off instead of rounding.
    rtol = 2 * info.eps if INTERPRETED else info.eps
    torch.testing.assert_close(actual.double(), wanted, rtol=rtol, atol=atol)


def sums_of(inputs: Any) -> torch.dtype:
    """The dtype that sums are kept in."""
    wide = any(isinstance(t, Tensor) and t.dtype == torch.float64 for t in inputs)
    return torch.float64 if wide else torch.float32


def check(
    backend: Backend, inputs: Any, *, sums: torch.dtype | None = None, **options: Any
) -> None:
    """A backend's output and every gradient follow the definition.

    Args:
        options: of the backend's `backward`.
    """
    sums = sums or sums_of(inputs)
    grad_out = grad_like(inputs)
    out, *wanted = expected(inputs, grad_out)
    result = backend.forward(inputs)
    assert result.dtype == inputs[0].dtype
    assert result.shape == out.shape
    close(result, out, sums)
    found = [grad for grad in backend.backward(grad_out, inputs, **options) if grad is not None]
    for actual, one, name in zip(found, wanted, differentiable(inputs), strict=True):
        like = getattr(inputs, name)
        assert (actual.dtype, actual.shape) == (like.dtype, like.shape), name
        close(actual, one, sums)


def strided(inputs: Any) -> Any:
    """The same numbers, no tensor contiguous."""

    def spread(tensor: Tensor) -> Tensor:
        if tensor.dim() == 1:
            return tensor.repeat_interleave(2)[::2]
        pair = torch.stack((tensor, tensor), -1).transpose(0, 1).contiguous()
        return pair.transpose(0, 1)[..., 0]

    result = [spread(t) if isinstance(t, Tensor) else t for t in inputs]
    assert not any(isinstance(t, Tensor) and t.is_contiguous() for t in result)
    return type(inputs)(*result)


def gradients(function: Any, inputs: Any, grad_out: Tensor) -> list[Tensor]:
    """Autograd's, for all inputs that require one."""
    wanted = [t for t in inputs if isinstance(t, Tensor) and t.requires_grad]
    return list(torch.autograd.grad(function(*inputs), wanted, grad_out))
