"""The transformer's linear layers give the same from another library, and stay what they were."""

import copy
import pickle

import pytest
import torch
from torch import nn

from turbo_physai import NoOptions
from turbo_physai.optimizations.bevformer import linear as replaced


@pytest.fixture
def transformer(monkeypatch):
    """Makes the example's transformer, as on a machine where oneDNN is faster, or not."""
    from model import ModelConfig, build_model
    from projects.mmdet3d_plugin.bevformer.modules.transformer import PerceptionTransformer
    from turbo_physai.kernels.common.cpu import matrix_product

    original = PerceptionTransformer.__init__

    def make(pays):
        monkeypatch.setattr(replaced, "onednn_pays", lambda: pays)
        monkeypatch.setattr(matrix_product, "onednn_pays", lambda: pays)
        made = replaced.initialize(original, NoOptions())
        assert (made is original) is not pays
        monkeypatch.setattr(PerceptionTransformer, "__init__", made)
        config = ModelConfig(bev=20, embed_dims=64, encoder_layers=1, decoder_layers=1, queries=90)
        return build_model(config).pts_bbox_head.transformer

    return make


def kinds(module):
    return {type(m) for m in module.modules() if isinstance(m, nn.Linear)}


def test_linear_layers_change_and_everything_about_them_stays(transformer):
    plain, made = transformer(pays=False), transformer(pays=True)
    assert nn.Linear in kinds(plain)
    assert nn.Linear not in kinds(made)
    assert replaced.Linear in kinds(made)
    assert repr(made) == repr(plain)
    assert list(made.state_dict()) == list(plain.state_dict())
    made.load_state_dict(plain.state_dict())


def test_a_feed_forward_block_gives_the_same(transformer, same, disturbed):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    made = disturbed(transformer(pays=True).encoder.layers[0].ffns[0]).eval()
    assert kinds(made) == {replaced.Linear}
    plain = copy.deepcopy(made)
    for module in plain.modules():
        if isinstance(module, nn.Linear):
            module.__class__ = nn.Linear
    x = torch.randn(1, 400, 64, requires_grad=True)

    def other(module):
        return lambda: torch.func.functional_call(module, dict(made.named_parameters()), (x,))

    same(made, other(plain), lambda: made(x), x)


def test_it_is_copied_and_pickled_as_any_layer(transformer):
    made = transformer(pays=True)
    assert kinds(copy.deepcopy(made)) == kinds(made)
    layer = next(m for m in made.modules() if isinstance(m, replaced.Linear))
    assert type(pickle.loads(pickle.dumps(layer))) is replaced.Linear
