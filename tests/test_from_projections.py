"""Layers from W_Q, W_K, W_V, W_O, against plain numpy and torch."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.interop import from_projections, to_projections
from polyattn.sequences import MODES
from projection_cases import (
    ALL,
    EPS,
    KINDS,
    content,
    layer_of,
    outputs,
    random_projections,
    relative,
    tokens_of,
)  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("biases", [(), ("b_Q",), ("b_K",), ("b_V",), ("b_O",), ALL])
@pytest.mark.parametrize("kind", KINDS)
def test_projections_are_read(kind, biases, mode):
    given_arrays = random_projections(kind)
    for name in set(ALL) - set(biases):
        del given_arrays[name]
    layer = from_projections(**given_arrays, mode=mode)
    # A linear layer has a place of its own for b_O.
    constants = set(biases) - {"b_O"} if kind == "linear" else biases
    assert (layer.bias, layer.mode, layer.n_heads) == (bool(constants), mode, 2)
    X = tokens_of(layer)
    assert relative(layer(X), outputs(given_arrays, X, mode)) < 1e3 * EPS
    again = to_projections(layer, scale=1.7)
    assert again.scale == 1.7
    assert relative(outputs(content(again), X, mode), layer(X)) < 1e3 * EPS
    assert pa.same_function(again.to_layer(), layer, tolerance=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_side_by_side_are_read(kind):
    given_arrays = random_projections(kind)
    del given_arrays["b_O"]
    expected = from_projections(**given_arrays)
    joined = {
        name: array.transpose(1, 0, 2).reshape(len(array[0]), -1)
        for name, array in given_arrays.items()
        if name in ("W_Q", "W_K", "W_V")
    }
    joined["W_O"] = given_arrays["W_O"].reshape(-1, 5)
    joined |= {name: given_arrays[name].ravel() for name in ("b_Q", "b_K", "b_V")}
    assert from_projections(**given_arrays | joined, n_heads=2) == expected
    # The second token of the oracle's first head: x W_Q in columns 0..3.
    found = to_projections(expected, scale=1.7)
    again = from_projections(**found.side_by_side(), kind=kind, scale=1.7, n_heads=2)
    assert again == found.to_layer()
    assert found.side_by_side()["W_Q"].shape == (4, 2 * found.head_dim)


def test_scales_and_modes_by_default():
    arrays = random_projections("linear")
    weights = [arrays[name] for name in ("W_Q", "W_K", "W_V", "W_O")]
    linear, softmax = (from_projections(*weights, kind=kind) for kind in KINDS)
    np.testing.assert_allclose(linear.attn, softmax.attn * np.sqrt(3.0))
    assert (linear.mode, softmax.mode) == ("last", "full")
    assert to_projections(linear).scale == 1.0
    assert to_projections(softmax).scale == np.sqrt(3.0)


def test_what_does_not_fit_is_named():
    good = random_projections("linear")
    del good["b_O"]
    bad = {
        r"n_heads \(1 for one head\)": {"W_Q": good["W_Q"][0]},
        r"W_Q has 2 heads, but n_heads = 3": {"n_heads": 3},
        r"W_O must have shape \(H, value_dim, e\).*got \(5,\)": {"W_O": np.ones(5)},
        r"same number of heads.*np\.repeat": {"W_K": good["W_K"][:1]},
        r"tokens of one width d.*form=layer\.form": {"W_K": good["W_K"][:, 1:]},
        r"queries and keys must have one width": {"W_K": good["W_K"][:, :, 1:]},
        r"W_O must take values": {"W_O": good["W_O"][:, 1:]},
        r"b_Q must have shape \(2, 3\); got \(4,\)": {"b_Q": np.ones(4)},
        r"W_V contains NaN": {"W_V": good["W_V"] * np.nan},
        r"scale must be positive": {"scale": 0},
        r"scale must be a finite number": {"scale": -1.0},
        r"kind must be one of 'linear', 'softmax'": {"kind": "relu"},
        r"mode must be one of": {"mode": "sideways"},
    }  # fmt: skip
    for message, change in bad.items():
        with pytest.raises(InvalidInput, match=message):
            from_projections(**good | change)
    with pytest.raises(InvalidInput, match="n_heads = 3 does not divide 4"):
        from_projections(*np.ones((4, 4, 4)), kind="linear", n_heads=3)
    with pytest.raises(InvalidType, match="W_Q must hold real numbers; got text"):
        from_projections(**good | {"W_Q": "weights"})


@pytest.mark.parametrize("bias", [False, True])
def test_multihead_attention_has_these_projections(bias):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(6, 2, bias=bias, batch_first=True, dtype=torch.float64)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    weights = [part.T.detach().numpy() for part in module.in_proj_weight.chunk(3)]
    biases = [part.detach().numpy() for part in module.in_proj_bias.chunk(3)] if bias else []
    output = {"b_O": module.out_proj.bias.detach().numpy()} if bias else {}
    layer = from_projections(
        *weights, module.out_proj.weight.T.detach().numpy(), *biases, **output,
        kind="softmax", n_heads=2,
    )  # fmt: skip
    assert pa.same_function(layer, pa.interop.from_torch(module), tolerance=1e-13)
    X = tokens_of(layer)
    with torch.no_grad():
        expected = module(*[torch.tensor(X)] * 3)[0].numpy()
    assert relative(layer(X), expected) < 1e3 * EPS


@pytest.mark.parametrize("kind", KINDS)
def test_scaled_products_of_torch_agree(kind):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    layer = layer_of(kind, mode="causal")
    found = to_projections(layer, value_dim=2)
    X = torch.tensor(tokens_of(layer))
    queries, keys, values = (
        X[:, None] @ torch.tensor(np.array(each)) for each in (found.W_Q, found.W_K, found.W_V)
    )
    if kind == "softmax":
        means = torch.nn.functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=True, scale=1.0 / found.scale
        )
    else:
        means = torch.tril(queries @ keys.transpose(2, 3) / found.scale) @ values
    expected = (means @ torch.tensor(np.array(found.W_O))).sum(1).numpy()
    assert relative(layer(X.numpy()), expected) < 1e3 * EPS
