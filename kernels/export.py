"""The operators in PyTorch's own operators, for programs that have to do without this package.

program = torch.export.export(model, inputs).run_decompositions(decompositions())
torch.onnx.export(program, f="model.onnx")        # needs onnx and onnxscript
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ._operator import Operator


def decompositions() -> dict[Any, Callable[..., Any]]:
    """torch's default table of decompositions, and the definition of every operator here.

    The definitions gather the corners of samples, so that maps may have any size at run time.
    """
    table: dict[Any, Callable[..., Any]] = dict(torch.export.default_decompositions())
    for operator in Operator.all.values():
        table[operator.overload] = _definition(operator)
    return table


def _definition(operator: Operator) -> Callable[..., Any]:
    reference = importlib.import_module(f"{operator.inputs.__module__}.reference")

    def definition(*arguments: Any) -> Any:
        inputs = operator.inputs(*arguments)
        result = reference.forward(inputs)
        return result.to(inputs[0].dtype) if isinstance(result, Tensor) else result

    return definition
