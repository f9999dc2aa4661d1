"""The queue of maps; what else the operator shares is in `attention`."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import TEMPORAL
from kernel_checks import check, close
from turbo_physai.kernels import temporal_self_attention
from turbo_physai.kernels.ops.temporal_self_attention import Inputs, reference


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("entries", [1, 2, 3])
def test_entries_of_every_item_have_values_references_and_a_softmax_of_their_own(
    backend, entries, batch
):
    check(
        backend,
        TEMPORAL.make(
            batch=batch, entries=entries, queries=7, heads=1, dim=4, device=backend.device
        ),
    )


def test_a_logit_that_is_not_finite_stays_in_its_entry(backend):
    inputs = TEMPORAL.make(queries=3, reach=0.3, device=backend.device)
    inputs.logits[:, 1, :, 1, 1] = torch.nan
    out = backend.forward(inputs)
    _, _, grad_logits = backend.backward(torch.ones_like(out), inputs)
    assert grad_logits[:, 1, :, 1].isnan().all()
    assert grad_logits[:, 1, :, 0].isfinite().all()


def test_reference_points_get_a_gradient_where_one_is_wanted():
    inputs = TEMPORAL.make()
    grad_out = torch.randn(2, 11, 24)
    points = inputs.reference_points.requires_grad_()
    (found,) = torch.autograd.grad(temporal_self_attention(*inputs), points, grad_out)
    wide = Inputs(*(t.detach().double() if t.is_floating_point() else t for t in inputs))
    wide.reference_points.requires_grad_()
    out = reference.forward(wide)
    (wanted,) = torch.autograd.grad(out, wide.reference_points, grad_out.double())
    close(found, wanted)
