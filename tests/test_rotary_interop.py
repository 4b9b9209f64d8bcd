"""Rotary layers as projections and as torch modules, and drawn at random."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.interop import from_projections, from_torch, to_multihead, to_projections, to_torch
from polyattn.sequences import MODES
from rotary_cases import random_rotary

X = np.random.default_rng(1).standard_normal((3, 6, 3))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_projections_and_back(mode, bias):
    layer = random_rotary(mode, bias)
    found = to_projections(layer)
    assert repr(found).endswith("scale=1, rotary)")
    assert "turned queries and keys of 4 coordinates" in found.sentence
    np.testing.assert_array_equal(found.W_Q, layer.query[:, :3])
    np.testing.assert_array_equal(found.W_K, layer.key[:, :3])
    back = found.to_layer()
    np.testing.assert_array_equal(back.query, layer.query)
    np.testing.assert_array_equal(back.key, layer.key)
    np.testing.assert_array_equal(back.frequencies, layer.frequencies)
    np.testing.assert_allclose(back(X), layer(X), atol=1e-13)
    assert pa.same_function(back, layer)
    if bias:
        np.testing.assert_array_equal(found.b_K, layer.key[:, 3])
        np.testing.assert_allclose(found.b_O, layer.value[:, 3].sum(axis=0))
    split = to_projections(layer, head_dim=4, value_dim=1, scale=2.0)
    assert split.n_heads == 4
    assert split.scale == 2.0
    np.testing.assert_array_equal(split.W_Q, 2 * layer.query[[0, 0, 1, 1], :3])
    assert pa.same_function(split.to_layer(), layer)


def test_projections_side_by_side_have_the_usual_scale():
    layer = random_rotary(n_heads=2)
    found = to_projections(layer, scale=2.0)
    parts = found.side_by_side()
    assert parts["W_Q"].shape == (3, 8)
    again = from_projections(**parts, kind="softmax", n_heads=2, rotary=10.0)
    np.testing.assert_allclose(again(X), layer(X), atol=1e-13)
    still = from_projections(**parts, kind="softmax", n_heads=2)
    assert np.abs(still(X) - layer(X)).max() > 0.1


def test_interleaved_columns_in_the_order_that_is_named():
    """A model that turns coordinates 2i and 2i + 1, written out."""
    rng = np.random.default_rng(2)
    W_Q, W_K = rng.standard_normal((2, 1, 3, 4))
    W_V, W_O = rng.standard_normal((1, 3, 2)), rng.standard_normal((1, 2, 2))
    frequencies = np.array([0.7, 0.2])
    turns = np.exp(1j * np.arange(6)[:, None] * frequencies)
    query, key = ((X[0] @ W[0])[:, 0::2] + 1j * (X[0] @ W[0])[:, 1::2] for W in (W_Q, W_K))
    logits = np.real((query * turns) @ (key * turns).conj().T) / 2.0
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    order = [0, 2, 1, 3]
    layer = from_projections(
        W_Q[..., order], W_K[..., order], W_V, W_O, kind="softmax", rotary=frequencies
    )
    np.testing.assert_allclose(layer(X[0]), weights @ X[0] @ W_V[0] @ W_O[0], atol=1e-13)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda layer: to_projections(layer, head_dim=2), "head_dim must be 4.*cannot be cut"),
        (
            lambda layer: from_projections(
                layer.query, layer.key, layer.value, np.ones((2, 2, 1)), kind="linear", rotary=1.0
            ),
            "rotary was given for linear heads",
        ),
        (
            lambda layer: from_projections(
                layer.query[..., :3], layer.key[..., :3], layer.value, np.ones((2, 2, 1)),
                kind="softmax", rotary=1.0,
            ),
            "even number r",
        ),
        (lambda _: pa.data.random_softmax_layer(3, rotary=10.0), "give rank"),
        (lambda _: pa.data.random_softmax_layer(3, rank=3, rotary=10.0), "even number r"),
    ],
)  # fmt: skip
def test_misuse_is_refused(call, message):
    with pytest.raises(InvalidInput, match=message):
        call(random_rotary())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_modules_and_back(mode, bias):
    torch = pytest.importorskip("torch")
    layer = random_rotary(mode, bias)
    module = to_torch(layer)
    assert [name for name, _ in module.named_parameters()] == ["query", "key", "value"]
    for n_tokens in (1, 2, 6):
        given = X[:, :n_tokens]
        found = module(torch.tensor(given)).detach().numpy()
        np.testing.assert_allclose(found, layer(given), atol=1e-13)
    one = module(torch.tensor(X[0])).detach().numpy()
    np.testing.assert_allclose(one, layer(X[0]), atol=1e-13)
    assert from_torch(module) == layer
    other = to_torch(random_rotary(mode, bias, seed=1))
    other.load_state_dict(module.state_dict())
    assert from_torch(other) == layer
    single = module.float()(torch.tensor(X, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(single, layer(X), atol=1e-4)
    assert "rotary=2" in repr(module)


def test_gradients_pass_through_the_rotation():
    torch = pytest.importorskip("torch")
    module = to_torch(random_rotary("causal", n_heads=1))
    tokens = torch.tensor(X[:1, :4]).requires_grad_()

    def function(query, key, value, tokens):
        given = {"query": query, "key": key, "value": value}
        return torch.func.functional_call(module, given, (tokens,)).sum()

    inputs = (module.query, module.key, module.value, tokens)
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("mode", ["last", "causal"])
def test_graphs_serve_every_length(mode):
    torch = pytest.importorskip("torch")
    layer = random_rotary(mode, bias=True)
    module = to_torch(layer)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", min=1)}
    exported = torch.export.export(module, (torch.tensor(X),), dynamic_shapes=(sizes,))
    traced = torch.jit.trace(module, torch.tensor(X))
    for given in (X[:2, :4], X, np.concatenate([X, X], axis=1)):
        for graph in (exported.module(), traced):
            found = graph(torch.tensor(given)).detach().numpy()
            np.testing.assert_allclose(found, layer(given), atol=1e-12)


def test_multihead_attention_has_no_positions():
    pytest.importorskip("torch")
    with pytest.raises(InvalidInput, match=r"no positions.*to_projections W_Q and W_K"):
        to_multihead(random_rotary(n_outputs=3))


def test_an_audit_reads_the_module():
    torch = pytest.importorskip("torch")
    layer = random_rotary("causal")
    tokens = np.random.default_rng(2).standard_normal((60, 5, 3))
    found = pa.audit(to_torch(layer), tokens, layer(tokens))
    assert found.risk < 1e-25
    assert isinstance(to_torch(layer), torch.nn.Module)


def test_random_layers():
    layer = pa.data.random_softmax_layer(64, 3, 2, 2.0, rank=16, rotary=100.0, random_state=0)
    assert layer.query.shape == (2, 64, 16)
    assert layer.value.shape == (2, 64, 3)
    tokens = np.random.default_rng(3).standard_normal((200, 64))
    logits = np.einsum("td,hde,te->ht", tokens[:100], layer.attn_at(7), tokens[100:])
    assert 1.5 < logits.std() < 2.5
    again = pa.data.random_softmax_layer(64, 3, 2, 2.0, rank=16, rotary=100.0, random_state=0)
    assert again == layer
    wide = pa.data.random_softmax_layer(2, rank=8, rotary=100.0, bias=True, mode="causal")
    assert wide.query.shape == (1, 3, 8)
