"""Exported programs hold the operators, or their definitions for other runtimes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from turbo_physai.kernels.export import decompositions


class Layer(torch.nn.Module):
    """An operator with its numbers, of the tensors that it is called with."""

    def __init__(self, operator, inputs):
        super().__init__()
        self.function, self.inputs = operator.function, inputs

    def forward(self, *tensors):
        rest = iter(tensors)
        arguments = [next(rest) if isinstance(i, Tensor) else i for i in self.inputs]
        return self.function(*arguments)


@pytest.fixture
def exported(operator):
    """The layer, its tensors and its program."""
    inputs = operator.make()
    layer, tensors = Layer(operator, inputs), tuple(i for i in inputs if isinstance(i, Tensor))
    return layer, tensors, torch.export.export(layer, tensors)


def names(program):
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def same(found, wanted):
    for one, other in zip(tuple_of(found), tuple_of(wanted), strict=True):
        if one.dtype == torch.bool:
            assert torch.equal(one, other)
        else:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def tuple_of(result):
    return (result,) if isinstance(result, Tensor) else result


def test_a_program_keeps_the_operator(exported, operator):
    layer, tensors, program = exported
    assert f"turbo_physai.{operator.name}.default" in names(program)
    same(program.module()(*tensors), layer(*tensors))


def test_decomposed_it_needs_no_operator_of_this_package(exported):
    layer, tensors, program = exported
    program = program.run_decompositions(decompositions())
    assert not [name for name in names(program) if "turbo_physai" in name]
    same(program.module()(*tensors), layer(*tensors))


@pytest.mark.slow
def test_decomposed_it_runs_in_onnx(exported, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    layer, tensors, program = exported
    program = program.run_decompositions(decompositions())
    torch.onnx.export(program, f=str(tmp_path / "layer.onnx"), dynamo=True, verbose=False)
    session = runtime.InferenceSession(tmp_path / "layer.onnx")
    fed = {
        given.name: tensor.numpy()
        for given, tensor in zip(session.get_inputs(), tensors, strict=True)
    }
    same([torch.from_numpy(out) for out in session.run(None, fed)], layer(*tensors))
