"""GridMask on the images' device draws and blanks what the original draws and blanks."""

import numpy as np
import pytest
import torch

from turbo_physai.optimizations.bevformer.grid_mask import grid_mask_forward


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("prob", [0.5, 1.0])
@pytest.mark.parametrize(
    "options",
    [
        {},  # as BEVFormer sets it
        {"rotate": 360, "offset": True},
        {"ratio": 0.3, "mode": 0},
    ],
)
def test_masks_and_draws_are_the_originals(options, prob, training):
    from projects.mmdet3d_plugin.models.utils.grid_mask import GridMask

    settings = {"rotate": 1, "offset": False, "ratio": 0.5, "mode": 1} | options
    module = GridMask(True, True, prob=prob, **settings).train(training)
    seed = np.random.SeedSequence().generate_state(1)[0]
    print("numpy.random.seed", seed)
    np.random.seed(seed)
    state, x = np.random.get_state(), torch.randn(6, 3, 20, 33)
    for _ in range(20):
        expected = module(x)
        after = np.random.get_state()
        np.random.set_state(state)
        assert torch.equal(grid_mask_forward(module, x), expected)
        state = np.random.get_state()
        assert state[2] == after[2]
        assert (state[1] == after[1]).all()
