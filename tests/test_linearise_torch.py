"""Linearised layers as torch modules: the same function, trainable, and Adam as a rival."""

import numpy as np
import pytest
import torch

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 37, 3))


def softmax_layer(mode):
    attn, value = RNG.standard_normal((2, 3, 3)), RNG.standard_normal((2, 3, 2))
    return pa.SoftmaxAttention(attn, value, mode)


@pytest.mark.parametrize("mode", ["full", "causal", "last"])
@pytest.mark.parametrize(
    ("maps", "options"),
    [("landmarks", {"window": 5}), ("hedgehog", {"denominator": "fitted"}), ("taylor", {}),
     ("favor", {}), ("elu", {"denominator": "tokens", "window": 1, "skip": False}),
     ("linear", {}), (np.tanh, {})],
)  # fmt: skip
def test_modules_compute_the_function_of_the_layer(mode, maps, options):
    layer = pa.linearise(softmax_layer(mode), X, maps, n_features=5, ridge=1e-3, **options).layer
    module = pa.interop.to_torch(layer)
    outputs = module(torch.tensor(X))
    np.testing.assert_allclose(outputs.detach().numpy(), layer(X), atol=1e-10)
    one = module(torch.tensor(X[0, :3])).detach().numpy()
    np.testing.assert_allclose(one, layer(X[0, :3]), atol=1e-10)
    assert pa.interop.from_torch(module) == layer


def test_large_logits_do_not_overflow_and_gradients_are_finite():
    given = pa.SoftmaxAttention(400.0 * np.eye(3), np.eye(3), "causal")
    module = pa.linearise(given, X, n_features=4, window=3).to_torch()
    outputs = module(torch.tensor(X))
    assert torch.isfinite(outputs).all()
    outputs.square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_modules_can_be_trained_and_read_back():
    given = softmax_layer("full")
    result = pa.linearise(given, X, "linear", skip=False)
    module, wanted = result.to_torch(), torch.tensor(given(X))
    adam = torch.optim.Adam(module.parameters(), 3e-3)
    losses = []
    for _ in range(40):
        adam.zero_grad()
        loss = (module(torch.tensor(X)) - wanted).square().mean()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    assert losses[-1] < 0.95 * losses[0]
    trained = pa.interop.from_torch(module, "full")
    np.testing.assert_allclose(trained(X), module(torch.tensor(X)).detach().numpy(), atol=1e-10)


def test_what_modules_refuse():
    module = pa.linearise(softmax_layer("full"), X, n_features=2).to_torch()
    with pytest.raises(InvalidInput, match="mode 'full'"):
        pa.interop.from_torch(module, "causal")
    with pytest.raises(InvalidInput, match="shape"):
        module(torch.zeros(2, 3, 5))
    with pytest.raises(InvalidType, match="Tensor"):
        module(X)
    assert "n_heads=2" in repr(module)


@pytest.mark.parametrize("window", [None, 2])
def test_adam_is_a_rival_that_learns(window):
    given = softmax_layer("causal")
    result = pa.linearise(given, X, n_features=4, window=window, ridge=1e-8, adam=True)
    assert result.methods[-2:] == ("adam", "adam_10")
    row = result.table[-1]
    assert row["adam_10_training"] < 0.9
    assert row["fit_training"] <= row["adam_10_training"] * 1.05
    assert "Adam" in result.sentence
