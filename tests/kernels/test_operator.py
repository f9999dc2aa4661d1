"""What all operators share: how torch sees them, and how they tell a mistake."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from kernel_cases import ALL, DIFFERENTIABLE, POINT_SAMPLING
from kernel_checks import close, expected, grad_like, gradients
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode
from turbo_physai.kernels import _backends
from turbo_physai.kernels._operator import Operator

differentiable = pytest.mark.parametrize("operator", DIFFERENTIABLE, ids=lambda one: one.name)


def floats(inputs):
    return [t for t in inputs if isinstance(t, Tensor) and t.is_floating_point()]


@differentiable
def test_autograd_follows_the_definition(operator):
    inputs = operator.make(requires_grad=True)
    grad_out = grad_like(inputs)
    out, *wanted = expected(inputs, grad_out)
    close(operator.function(*inputs), out)
    found = gradients(operator.function, inputs, grad_out)
    for actual, one in zip(found, wanted, strict=False):
        close(actual, one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_opcheck_finds_nothing(operator, dtype):
    inputs = operator.make(dtype=dtype, other_dtype=torch.float32, requires_grad=True)
    torch.library.opcheck(operator.overload, tuple(inputs))


@differentiable
def test_opcheck_finds_nothing_backward(operator):
    inputs = operator.make()
    backward = Operator.all[operator.name].backward_overload
    names = Operator.all[operator.name].differentiable
    for wanted in ([True] * len(names), [False] + [True] * (len(names) - 1)):
        torch.library.opcheck(backward, (grad_like(inputs), *inputs, wanted))


def test_it_compiles_without_a_graph_break(operator):
    compiled = torch.compile(operator.function, fullgraph=True, backend="aot_eager", dynamic=True)
    for batch in (2, 3):
        inputs = operator.make(batch=batch)
        torch.testing.assert_close(compiled(*inputs), operator.function(*inputs), equal_nan=True)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_it_can_be_traced(operator):
    inputs, others = operator.make(), operator.make()

    def function(*tensors):
        rest = iter(tensors)
        return operator.function(*(next(rest) if isinstance(i, Tensor) else i for i in inputs))

    tensors = [[t for t in given if isinstance(t, Tensor)] for given in (inputs, others)]
    traced = torch.jit.trace(function, tensors[0])
    torch.testing.assert_close(traced(*tensors[1]), operator.function(*others), equal_nan=True)


@differentiable
def test_its_gradients_compile(operator):
    inputs = operator.make(requires_grad=True)
    grad_out = grad_like(inputs)
    function = operator.function

    def layer(*inputs):
        return function(*inputs).relu() * 2

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for one, other in zip(
        gradients(compiled, inputs, grad_out), gradients(layer, inputs, grad_out), strict=True
    ):
        torch.testing.assert_close(one, other)


@differentiable
def test_it_works_under_activation_checkpointing(operator):
    inputs = operator.make(requires_grad=True)
    grad_out = grad_like(inputs)

    def kept(*inputs):
        return checkpoint(operator.function, *inputs, use_reentrant=False)

    for one, other in zip(
        gradients(kept, inputs, grad_out),
        gradients(operator.function, inputs, grad_out),
        strict=True,
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["cpu", "torch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_casts_nothing(operator, dtype, name, monkeypatch):
    monkeypatch.setattr(_backends, "_forced", name)
    inputs = operator.make(dtype=dtype, other_dtype=torch.float32, requires_grad=True)
    outside = operator.function(*inputs)
    with torch.autocast("cpu", torch.float16):
        inside = operator.function(*inputs)
    for one, other in zip(as_tuple(inside), as_tuple(outside), strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    if isinstance(inside, Tensor):
        wanted = [tensor for tensor in floats(inputs) if tensor.requires_grad]
        grads = torch.autograd.grad(inside, wanted, torch.ones_like(inside))
        assert [grad.dtype for grad in grads] == [tensor.dtype for tensor in wanted]


def as_tuple(result):
    return (result,) if isinstance(result, Tensor) else result


@differentiable
def test_a_second_derivative_is_refused(operator):
    inputs = operator.make(requires_grad=True)
    out = operator.function(*inputs)
    (grad,) = torch.autograd.grad(out.sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match=f"{operator.name} has a first derivative only"):
        grad.sum().backward()


@differentiable
@pytest.mark.parametrize("way", ["jvp", "jacfwd", "forward_ad"])
def test_forward_mode_is_refused(operator, way):
    first, *rest = operator.make()

    def function(tensor):
        return operator.function(tensor, *rest)

    def dual():
        with forward_ad.dual_level():
            return function(forward_ad.make_dual(first, first))

    run = {
        "jvp": lambda: torch.func.jvp(function, (first,), (first,)),
        "jacfwd": lambda: torch.func.jacfwd(function)(first),
        "forward_ad": dual,
    }
    with pytest.raises(RuntimeError, match=f"{operator.name} has no forward-mode derivative"):
        run[way]()


@differentiable
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev])
def test_transforms_that_differentiate_are_refused_in_words_about_the_operator(operator, transform):
    first, *rest = operator.make()
    with pytest.raises(
        RuntimeError, match=rf"{operator.name} cannot be differentiated by torch\.func"
    ):
        transform(lambda tensor: operator.function(tensor, *rest).sum())(first)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@differentiable
def test_vmap_maps_it(operator):
    (first, *rest), (second, *_) = operator.make(), operator.make()
    mapped = torch.vmap(lambda tensor: operator.function(tensor, *rest))(
        torch.stack((first, second))
    )
    for one, tensor in zip(mapped, (first, second), strict=True):
        torch.testing.assert_close(one, operator.function(tensor, *rest))


@differentiable
def test_backward_computes_only_what_needs_a_gradient(operator, monkeypatch):
    description = Operator.all[operator.name]
    names = description.differentiable
    backend = sys.modules[description.backend(operator.make()).__name__]
    asked = []
    original = backend.backward

    def recorded(grad_out, inputs, wanted):
        asked.append(wanted)
        return original(grad_out, inputs, wanted)

    monkeypatch.setattr(backend, "backward", recorded)
    for name in names:
        inputs = operator.make()
        getattr(inputs, name).requires_grad_()
        operator.function(*inputs).sum().backward()
        assert asked.pop() == tuple(one == name for one in names)
        assert getattr(inputs, name).grad is not None


@pytest.mark.parametrize(
    ("operator", "empty"),
    [pytest.param(o, e, id=f"{o.name}-{e}") for o in ALL for e in o.empty],
)
def test_empty_inputs_give_zeros(operator, empty):
    inputs = operator.make(**operator.empty[empty], requires_grad=True)
    out = operator.function(*inputs)
    results = inputs.result() if operator is POINT_SAMPLING else (inputs.result(),)
    for one, like in zip(as_tuple(out), results, strict=True):
        assert (one.shape, one.dtype) == (like.shape, like.dtype)
        assert not one.any()
    if operator is not POINT_SAMPLING:
        assert not any(grad.any() for grad in gradients(operator.function, inputs, out))


def test_flops_are_counted(operator):
    inputs = operator.make(requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        out = operator.function(*inputs)
        forward = counter.get_total_flops()
        if isinstance(out, Tensor):
            out.sum().backward()
    assert forward > 0
    if isinstance(out, Tensor):
        assert counter.get_total_flops() == 3 * forward


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensor: None, "must be a tensor, not None"),
        (lambda tensor: 3.5, "must be a tensor, not float"),
        (lambda tensor: tensor.tolist(), "must be a tensor, not list"),
        (lambda tensor: tensor.to_sparse(), r"must be a dense \(strided\) tensor, not sparse_coo"),
        (lambda tensor: tensor.int(), "must be one of float16, bfloat16, float32, float64, not i"),
        (lambda tensor: tensor.to(torch.complex64), "must be one of .*, not complex64"),
    ],
    ids=["None", "number", "list", "sparse", "integers", "complex"],
)
def test_what_is_no_dense_tensor_of_floats_is_refused_by_its_name(operator, change, message):
    inputs = operator.make()
    with pytest.raises(TypeError, match=f"^{inputs._fields[0]} {message}"):
        operator.function(change(inputs[0]), *inputs[1:])


@differentiable
def test_a_wrong_gradient_is_refused(operator):
    inputs = operator.make()
    shape = inputs.result().shape
    wrong = torch.ones(*shape[:-1], shape[-1] + 1)
    with pytest.raises(ValueError, match=r"^grad_out must be ") as caught:
        Operator.all[operator.name].backward(wrong, *inputs)
    assert str(caught.value) == f"grad_out must be {tuple(shape)}, not {tuple(wrong.shape)}"


@pytest.mark.slow
def test_without_the_library_torch_computes_the_same_and_says_so_once(operator, tmp_path):
    inputs = operator.make()
    out = as_tuple(operator.function(*inputs))
    torch.save((tuple(inputs), out), tmp_path / "all.pt")
    script = """if True:
        import sys, warnings, torch
        from turbo_physai.kernels.common.cpu import library
        library._load = lambda: (None, "no compiler")
        from turbo_physai import kernels
        inputs, wanted = torch.load(sys.argv[1])
        function = getattr(torch.ops.turbo_physai, sys.argv[2])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            out = function(*inputs)
            function(*inputs)
        out = out if isinstance(out, tuple) else (out,)
        for one, other in zip(out, wanted):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5, equal_nan=True)
        (warning,) = caught
        print(warning.message)
        print(kernels.backends())
    """
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "all.pt"), operator.name],
        env=dict(os.environ),
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"{operator.name} runs on PyTorch's own operators: no compiler")
    assert "missing: no compiler" in run.stdout
