"""The torch formulation samples as its formula says, and the Function has its gradients."""

import inspect
import math

import pytest
import torch
from projects.mmdet3d_plugin.bevformer.modules import multi_scale_deformable_attn_function as module

SHAPES = [(4, 7), (3, 2)]
FUNCTIONS = [
    module.MultiScaleDeformableAttnFunction_fp32,
    module.MultiScaleDeformableAttnFunction_fp16,
]


def make_inputs(batch=2, queries=5, heads=2, dim=3, points=3):
    """Random float64 inputs; a good part of the locations lies outside the maps."""
    keys = sum(height * width for height, width in SHAPES)
    value = torch.randn(batch, keys, heads, dim, dtype=torch.float64)
    locations = torch.rand(batch, queries, heads, len(SHAPES), points, 2, dtype=torch.float64)
    locations = locations * 2 - 0.5
    weights = torch.rand(batch, queries, heads, len(SHAPES), points, dtype=torch.float64)
    return value, torch.tensor(SHAPES), locations, weights


def bilinear(image, x, y):
    """image (H, W, D) at pixel coordinates x, y; zero outside."""
    height, width, dim = image.shape
    total = torch.zeros(dim, dtype=image.dtype)
    for row in (math.floor(y), math.floor(y) + 1):
        for column in (math.floor(x), math.floor(x) + 1):
            if 0 <= row < height and 0 <= column < width:
                total += (1 - abs(y - row)) * (1 - abs(x - column)) * image[row, column]
    return total


def reference(value, shapes, locations, weights):
    batch, queries, heads, levels, points, _ = locations.shape
    output = torch.zeros(batch, queries, heads, value.shape[-1], dtype=value.dtype)
    for b, q, h, level, p in torch.cartesian_prod(
        *(torch.arange(n) for n in (batch, queries, heads, levels, points))
    ).tolist():
        height, width = SHAPES[level]
        start = sum(rows * columns for rows, columns in SHAPES[:level])
        image = value[b, start : start + height * width, h].view(height, width, -1)
        x, y = (locations[b, q, h, level, p] * torch.tensor([width, height]) - 0.5).tolist()
        output[b, q, h] += weights[b, q, h, level, p] * bilinear(image, x, y)
    return output.flatten(2)


def test_the_torch_formulation_is_a_weighted_sum_of_bilinear_samples():
    inputs = make_inputs()
    result = module.multi_scale_deformable_attn_pytorch(*inputs)
    torch.testing.assert_close(result, reference(*inputs))


def test_locations_outside_every_map_give_zero():
    value, shapes, locations, weights = make_inputs()
    result = module.multi_scale_deformable_attn_pytorch(
        value, shapes, torch.full_like(locations, 3.0), weights
    )
    assert not result.any()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_function_has_the_gradients_of_the_torch_formulation(function):
    value, shapes, locations, weights = make_inputs()
    starts = torch.tensor([0, 28])
    wanted = [tensor.clone().requires_grad_() for tensor in (value, locations, weights)]
    found = [tensor.clone().requires_grad_() for tensor in (value, locations, weights)]
    expected = module.multi_scale_deformable_attn_pytorch(wanted[0], shapes, *wanted[1:])
    result = function.apply(found[0], shapes, starts, found[1], found[2], 64)
    torch.testing.assert_close(result, expected)
    grad = torch.randn_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad(result, found, grad),
        torch.autograd.grad(expected, wanted, grad),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("wanted", [{0}, {1}, {2}, {0, 2}])
def test_any_of_the_inputs_may_need_a_gradient(wanted):
    value, shapes, locations, weights = make_inputs()
    inputs = [value, locations, weights]
    for index in wanted:
        inputs[index].requires_grad_()
    function = module.MultiScaleDeformableAttnFunction_fp32
    function.apply(value, shapes, None, locations, weights, 64).sum().backward()
    assert {index for index in range(3) if inputs[index].grad is not None} == wanted


def test_nothing_is_recorded_without_gradients():
    value, shapes, locations, weights = make_inputs()
    value.requires_grad_()
    with torch.no_grad():
        result = module.MultiScaleDeformableAttnFunction_fp32.apply(
            value, shapes, None, locations, weights, 64
        )
    assert result.grad_fn is None


def test_a_retained_graph_can_be_used_again():
    value, shapes, locations, weights = make_inputs()
    value.requires_grad_()
    function = module.MultiScaleDeformableAttnFunction_fp32
    result = function.apply(value, shapes, None, locations, weights, 64).sum()
    first, second = (torch.autograd.grad(result, value, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_forward_and_backward_are_static_and_take_the_contracts_arguments(function):
    assert list(inspect.signature(function.forward).parameters) == [
        "ctx",
        "value",
        "value_spatial_shapes",
        "value_level_start_index",
        "sampling_locations",
        "attention_weights",
        "im2col_step",
    ]
    assert list(inspect.signature(function.backward).parameters) == ["ctx", "grad_output"]
    assert isinstance(inspect.getattr_static(function, "forward"), staticmethod)
    assert isinstance(inspect.getattr_static(function, "backward"), staticmethod)
