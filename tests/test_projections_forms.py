"""Linear layers of every form as projections, and back."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.interop import from_projections, to_projections
from projection_cases import ALL, EPS, outputs, random_projections, relative, tokens_of

FORMS = {
    "mean without the query": pa.Form(include_query=False, mean=True),
    "decay": pa.Form("causal", decay=0.7, bias=True),
    "two decays": pa.Form("causal", decay=[0.5, 0.9], skip=True),
    "lags": pa.Form("last", lags=2, window=3, intercept=True),
    "coordinates": pa.Form("full", query=[0, 2], key=[1, 2], value=[0], bias=True, intercept=True),
    "matrix": pa.Form(query=np.ones((3, 2)), value=np.eye(3)[:, 1:], skip=True, bias=True),
    "skip and constant": pa.Form("last", skip=True, intercept=True),
}  # fmt: skip


def seen(tokens, given):
    """What a map of a form sees of tokens."""
    if given is None:
        return tokens
    return tokens @ given if isinstance(given, np.ndarray) else tokens[..., list(given)]


def form_outputs(found, X, Z):
    """What Projections say of a linear layer of any form, weight by weight."""
    form, scales = found.form, found.form.scales
    zeros = {"b_Q": found.W_Q[:, 0] * 0, "b_K": found.W_K[:, 0] * 0, "b_V": found.W_V[:, 0] * 0}
    b_Q, b_K, b_V = (getattr(found, name) if getattr(found, name) is not None else zero
                     for name, zero in zeros.items())  # fmt: skip
    result = np.zeros((*X.shape[:2], found.W_O.shape[2]))
    for i, t in np.ndindex(X.shape[:2]):
        x = seen(X[i, t], form.query)
        last = t + 1 if form.mode == "causal" else len(Z[i])
        attended = [s for s in range(last) if form.include_query or s != t]
        attended = [s for s in attended if form.window is None or t - s < form.window]
        for h in range(found.n_heads):
            start, stop, decay = scales[found.head_scales[h]]
            for s in attended:
                if len(scales) > 1 and not start <= t - s < (np.inf if stop is None else stop):
                    continue
                weight = (decay ** (t - s) if decay != 1.0 else 1.0) * (
                    1.0 / len(attended) if form.mean else 1.0
                )
                key, value = seen(Z[i, s], form.key), seen(Z[i, s], form.value)
                product = (x @ found.W_Q[h] + b_Q[h]) @ (key @ found.W_K[h] + b_K[h])
                result[i, t] += (
                    weight * product / found.scale * (value @ found.W_V[h] + b_V[h]) @ found.W_O[h]
                )
        result[i, t] += 0.0 if found.W_skip is None else x @ found.W_skip
        result[i, t] += 0.0 if found.b_O is None else found.b_O
    return result[:, -1] if form.mode == "last" else result


@pytest.mark.parametrize("head_dim", [None, 1])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_layers_of_every_form_are_projected(form, head_dim):
    layer = pa.data.random_layer(3, 2, n_heads=2, form=form, random_state=5)
    found = to_projections(layer, head_dim, scale=2.0)
    X = tokens_of(layer)
    assert found.form == form
    assert relative(form_outputs(found, X, X), layer(X)) < 1e3 * EPS
    assert pa.same_function(found.to_layer(), layer, tolerance=1e-13)
    if head_dim is None:
        assert max(vars(pa.match_heads(found.to_layer(), layer))["attn_errors"]) < 1e-13


@pytest.mark.parametrize("bias", [False, True])
def test_cross_attention_is_projected(bias):
    form = pa.Form("full", bias=bias)
    layer = pa.data.random_layer(3, 2, n_heads=2, form=form, n_context_dims=2)
    found = to_projections(layer)
    assert found.W_K.shape[1] == found.W_V.shape[1] == 2
    X, Z = tokens_of(layer), np.random.default_rng(2).standard_normal((2, 5, 2))
    assert relative(form_outputs(found, X, Z), layer(X, context=Z)) < 1e3 * EPS
    assert pa.same_function(found.to_layer(), layer, tolerance=1e-13)
    # Without a form, too, where widths differ only by the context.
    again = from_projections(
        found.W_Q, found.W_K, found.W_V, found.W_O, found.b_Q, found.b_K, found.b_V,
        kind="linear", mode="full", n_context_dims=2,
    )  # fmt: skip
    assert pa.same_function(again, layer, tolerance=1e-13)


@pytest.mark.parametrize("biases", [(), ("b_O",), ("b_V",), ("b_V", "b_O")])
def test_a_skip_holds_the_constant_where_it_can(biases):
    arrays = random_projections("linear")
    for name in set(ALL) - set(biases):
        del arrays[name]
    W_skip = np.random.default_rng(1).standard_normal((4, 5))
    layer = from_projections(**arrays, W_skip=W_skip, mode="causal")
    assert layer.form.skip
    assert layer.form.intercept == (biases == ("b_O",))
    X = tokens_of(layer)
    expected = outputs(arrays, X, "causal") + X @ W_skip
    assert relative(layer(X), expected) < 1e3 * EPS
    found = to_projections(layer)
    np.testing.assert_array_equal(found.W_skip, W_skip)
    assert pa.same_function(found.to_layer(), layer, tolerance=1e-13)


def test_a_form_must_have_a_place_for_everything():
    arrays = random_projections("linear")
    biases = {name: arrays.pop(name) for name in ALL}
    refused = {
        r"b_K was given.*Form\(bias=True": {"form": pa.Form(), "b_K": biases["b_K"]},
        r"b_O was given.*Form\(intercept=True": {"form": pa.Form(bias=True), "b_O": np.ones(5)},
        r"W_skip was given.*Form\(skip=True": {"form": pa.Form(), "W_skip": np.ones((4, 5))},
        r"W_skip must have shape \(4, 5\)": {"W_skip": np.ones((4, 4))},
        r"mode was given beside a form": {"form": pa.Form(), "mode": "causal"},
        r"attn must have shape": {"form": pa.Form(query=[0]), "n_dims": 4},
        r"head_scales": {"form": pa.Form(decay=[0.5, 1.0])},
        r"form was given for softmax heads": {"form": pa.Form(), "kind": "softmax"},
        r"W_skip was given for softmax": {"W_skip": np.ones((4, 5)), "kind": "softmax"},
    }  # fmt: skip
    for message, change in refused.items():
        with pytest.raises(InvalidInput, match=message):
            from_projections(**arrays | change)
    with pytest.raises(InvalidType, match="form must be"):
        from_projections(**arrays, form="causal")
    kept = from_projections(**arrays, form=pa.Form("causal", bias=True, skip=True), b_O=np.ones(5))
    np.testing.assert_array_equal(kept.skip, np.vstack([np.zeros((4, 5)), np.ones(5)]))
