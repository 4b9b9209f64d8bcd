"""Heads whose ranks fit torch.nn.MultiheadAttention within a tolerance only."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput
from projection_cases import layer_of, relative, tokens_of


def test_multihead_attention_takes_ranks_within_tolerance():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    base = layer_of("softmax", ranks=(2, 2), n_outputs=4, mode="full", bias=True)
    rng = np.random.default_rng(3)
    low = rng.standard_normal((2, 5, 2)) @ rng.standard_normal((2, 2, 4))
    layer = pa.SoftmaxAttention(
        base.attn + 1e-10 * rng.standard_normal(base.attn.shape), low, bias=True
    )
    with pytest.raises(InvalidInput, match=r"rank 4, more than head_dim = 2 of nn\.Multi.*toler"):
        pa.interop.to_multihead(layer)
    module = pa.interop.to_multihead(layer, tolerance=1e-8)
    assert type(module) is torch.nn.MultiheadAttention
    assert 1e-11 < module.relative_change < 1e-8
    assert "relative_change" not in module.state_dict()
    X = tokens_of(layer)
    with torch.no_grad():
        found = module(*[torch.tensor(X)] * 3)[0].numpy()
    assert 1e-13 < relative(found, layer(X)) < 1e-8
    exact = pa.interop.to_multihead(pa.SoftmaxAttention(base.attn, low, bias=True))
    assert exact.relative_change < 1e-12
    with pytest.raises(InvalidInput, match="tolerance must be"):
        pa.interop.to_multihead(layer, tolerance=-1)


def test_layers_recovered_from_queries_fit_within_tolerance():
    """Answers in single precision: heads of rank 4 come back with rank 8."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)

    def oracle(X):
        tokens = torch.tensor(X, dtype=torch.float32)
        with torch.no_grad():
            return module(tokens, tokens, tokens)[0].numpy().astype(np.float64)

    found = pa.learn_from_queries(oracle, 8, bias=True).layer
    with pytest.raises(InvalidInput, match=r"rank 8, more than head_dim = 4") as caught:
        pa.interop.to_multihead(found)
    named = float(str(caught.value).split("tolerance=")[1].split(",")[0])
    assert named < 1e-4
    again = pa.interop.to_multihead(found, tolerance=named)
    assert again.relative_change <= named
    truth = pa.interop.from_torch(module)
    assert pa.same_function(pa.interop.from_torch(again), truth, tolerance=1e-4)
