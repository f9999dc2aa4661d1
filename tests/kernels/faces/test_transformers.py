"""The module by which Hugging Face transformers calls ms_deform_attn."""

from __future__ import annotations

import inspect

import torch
from kernel_cases import MS_DEFORM_ATTN
from torch import nn
from turbo_physai.kernels import ms_deform_attn
from turbo_physai.kernels.faces.transformers import MultiScaleDeformableAttention


def test_forward_takes_the_list_of_shapes_and_the_step_as_well():
    inputs = MS_DEFORM_ATTN.make(requires_grad=True)
    value, shapes, starts, locations, weights = inputs
    out = MultiScaleDeformableAttention()(
        value=value,
        value_spatial_shapes=shapes,
        value_spatial_shapes_list=[tuple(shape) for shape in shapes.tolist()],
        level_start_index=starts,
        sampling_locations=locations,
        attention_weights=weights,
        im2col_step=64,
    )
    assert torch.equal(out, ms_deform_attn(*inputs))
    out.sum().backward()
    assert value.grad is not None


def test_its_signature_is_the_replaced_one():
    parameters = inspect.signature(MultiScaleDeformableAttention.forward).parameters.values()
    assert [p.name for p in parameters] == [
        "self",
        "value",
        "value_spatial_shapes",
        "value_spatial_shapes_list",
        "level_start_index",
        "sampling_locations",
        "attention_weights",
        "im2col_step",
    ]
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty for p in parameters)


def test_it_is_a_layer_without_state_that_declares_its_capabilities():
    layer = MultiScaleDeformableAttention
    assert layer.__init__ is nn.Module.__init__
    assert not list(layer().state_dict())
    assert layer.has_backward
    assert layer.can_torch_compile
