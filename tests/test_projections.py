"""Layers as W_Q, W_K, W_V, W_O and back, against plain numpy, and ranks within a tolerance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.interop import from_projections, to_projections
from polyattn.sequences import MODES

EPS = float(np.finfo(np.float64).eps)
KINDS = {"linear": pa.LinearAttention, "softmax": pa.SoftmaxAttention}


def outputs(found, X, mode):
    """What the docstring of Projections says, position by position."""
    result = np.zeros((*X.shape[:2], found["W_O"].shape[2]))
    zero = np.zeros(1)
    for i, tokens in enumerate(X):
        for t, token in enumerate(tokens):
            seen = tokens[: t + 1] if mode == "causal" else tokens
            for h, W_Q in enumerate(found["W_Q"]):
                query, keys, values = (
                    rows @ found[f"W_{name}"][h] + found.get(f"b_{name}", [zero] * (h + 1))[h]
                    for rows, name in ((token, "Q"), (seen, "K"), (seen, "V"))
                )
                weights = keys @ query / found["scale"]
                if found["kind"] == "softmax":
                    weights = np.exp(weights - weights.max())
                    weights /= weights.sum()
                assert query.shape == W_Q.shape[1:]
                result[i, t] += weights @ values @ found["W_O"][h]
            result[i, t] += found.get("b_O", 0.0)
    return result[:, -1] if mode == "last" else result


def content(projections):
    """The fields that are not None, by name."""
    names = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O", "scale", "kind")
    fields = {name: getattr(projections, name) for name in names}
    return {name: value for name, value in fields.items() if value is not None}


def layer_of(kind, ranks=(2, 3), n_dims=4, n_outputs=3, mode="causal", bias=False, seed=0):
    """Heads whose attn has these ranks, and value as much as fits."""
    rng = np.random.default_rng(seed)
    width = n_dims + bias
    attn = [
        rng.standard_normal((width, rank)) @ rng.standard_normal((rank, width)) for rank in ranks
    ]
    value = rng.standard_normal((len(ranks), width, n_outputs))
    return KINDS[kind](attn, value, mode, bias)


def relative(found, expected):
    return np.linalg.norm(found - expected) / (np.linalg.norm(expected) or 1.0)


def tokens_of(layer, seed=1):
    return np.random.default_rng(seed).standard_normal((2, 4, layer.n_dims))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_projections_compute_what_the_layer_does(kind, bias, mode):
    layer = layer_of(kind, mode=mode, bias=bias)
    found = to_projections(layer)
    X = tokens_of(layer)
    assert relative(outputs(content(found), X, mode), layer(X)) < 1e3 * EPS
    assert (found.kind, found.mode, found.n_heads, found.head_dim) == (kind, mode, 2, 3)
    back = found.to_layer()
    assert type(back) is type(layer)
    assert pa.same_function(back, layer, tolerance=1e-13)
    match = pa.match_heads(back, layer)
    assert max(match.worst_attn, match.worst_value) < 1e-13
    # A negative control for the oracle.
    other = content(found) | {"scale": 2.0 * found.scale}
    assert relative(outputs(other, X, mode), layer(X)) > 1e-3


@given(
    ranks=st.lists(st.integers(0, 4), min_size=1, max_size=3), head_dim=st.integers(1, 5),
    value_dim=st.none() | st.integers(1, 5), n_dims=st.integers(1, 4), n_outputs=st.integers(1, 4),
    bias=st.booleans(), seed=st.integers(0, 10**6),
)  # fmt: skip
def test_linear_layers_fit_every_width(ranks, head_dim, value_dim, n_dims, n_outputs, bias, seed):
    layer = layer_of("linear", ranks, n_dims, n_outputs, "causal", bias, seed)
    found = to_projections(layer, head_dim, value_dim)
    assert found.W_Q.shape == found.W_K.shape == (found.n_heads, n_dims, head_dim)
    assert found.W_O.shape == (found.n_heads, found.value_dim, n_outputs)
    assert value_dim in (None, found.value_dim)
    of_attn = [-(-min(rank, n_dims + bias) // head_dim) or 1 for rank in ranks]
    of_value = -(-min(n_dims + bias, n_outputs) // found.value_dim)
    assert found.n_heads == sum(of_attn) * of_value
    np.testing.assert_array_equal(
        found.heads, np.repeat(np.arange(len(ranks)), np.array(of_attn) * of_value)
    )
    assert found.change <= 1e-12
    assert pa.same_function(found.to_layer(), layer, tolerance=1e-12)


@given(
    ranks=st.lists(st.integers(0, 3), min_size=1, max_size=3), value_dim=st.integers(1, 4),
    n_dims=st.integers(1, 4), n_outputs=st.integers(1, 4), bias=st.booleans(),
    seed=st.integers(0, 10**6),
)  # fmt: skip
def test_values_of_softmax_heads_are_split(ranks, value_dim, n_dims, n_outputs, bias, seed):
    layer = layer_of("softmax", ranks, n_dims, n_outputs, "full", bias, seed)
    found = to_projections(layer, value_dim=value_dim)
    parts = -(-min(n_dims, n_outputs) // value_dim)
    assert found.n_heads == len(ranks) * parts
    assert found.b_K is None
    assert found.b_V is None
    # Parts of one head attend alike, so merging gives the heads back.
    assert pa.same_function(found.to_layer(), layer, tolerance=1e-11)
    X = tokens_of(layer)
    assert relative(outputs(content(found), X, "full"), layer(X)) < 1e-11


def test_softmax_heads_are_not_split():
    layer = layer_of("softmax", ranks=(1, 3))
    message = r"head 1 has attn of rank 3, more than head_dim = 2, and a softmax.*give head_dim=3"
    with pytest.raises(InvalidInput, match=message):
        to_projections(layer, head_dim=2)
    assert to_projections(layer, head_dim=3).head_dim == 3


def test_more_coordinates_than_needed_are_zero():
    found = to_projections(layer_of("softmax", ranks=(1,)), head_dim=6, value_dim=9)
    assert found.W_Q.shape == (1, 4, 6)
    assert found.W_V.shape == (1, 4, 9)
    assert np.abs(found.W_V[:, :, 3:]).max() == 0.0
    assert np.abs(found.W_Q[:, :, 1:]).max() < 1e-7


@pytest.mark.parametrize("kind", KINDS)
def test_zero_heads_stay(kind):
    layer = KINDS[kind](np.zeros((2, 3, 3)), np.zeros((2, 3, 2)), "full")
    found = to_projections(layer)
    assert (found.n_heads, found.head_dim, found.value_dim, found.change) == (2, 1, 1, 0.0)
    assert found.to_layer() == layer


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_sizes_do_not_matter(scale):
    plain = layer_of("linear")
    layer = pa.LinearAttention(scale * plain.attn, plain.value / scale, "causal")
    found = to_projections(layer, head_dim=1)
    assert found.n_heads == 5
    assert pa.same_function(found.to_layer(), layer, tolerance=1e-13)


# Tolerance ----------------------------------------------------------------------------------


def noisy(kind, noise=1e-9, bias=False):
    """Ranks of 2 up to noise."""
    layer = layer_of(kind, ranks=(2, 2), n_outputs=4, bias=bias)
    rng = np.random.default_rng(3)
    attn = layer.attn + noise * rng.standard_normal(layer.attn.shape)
    return KINDS[kind](attn, layer.value, layer.mode, bias)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_within_tolerance_is_dropped_and_reported(kind, bias):
    layer = noisy(kind, bias=bias)
    full = to_projections(layer)
    assert full.head_dim == 4 + (bias and kind == "linear")
    found = to_projections(layer, head_dim=2, tolerance=1e-7)
    assert found.n_heads == 2
    assert 1e-10 < found.change < 1e-7
    assert f"{found.change:.1e}" in str(found)
    back = found.to_layer()
    match = pa.match_heads(back, layer)
    visible = found.change * (1.0 if kind == "linear" else 2.0)
    assert 1e-11 < match.worst_attn <= visible * (1 + 1e-6) + 1e-14
    assert pa.same_function(back, layer, tolerance=1e-7)
    # With room for it, nothing is dropped.
    assert to_projections(layer, head_dim=5, tolerance=1e-7).change < 1e-15


def test_the_tolerance_that_the_message_names_is_enough():
    layer = noisy("softmax")
    with pytest.raises(InvalidInput, match="rank 4") as caught:
        to_projections(layer, head_dim=2)
    named = float(str(caught.value).split("tolerance=")[1].split(",")[0])
    found = to_projections(layer, head_dim=2, tolerance=named)
    assert 0.8 * named < found.change <= named


def test_the_change_of_a_linear_head_is_that_of_its_last_part():
    layer = noisy("linear")
    assert to_projections(layer, head_dim=1, tolerance=1e-7).n_heads == 4
    exact = to_projections(layer, head_dim=1)
    assert (exact.n_heads, exact.change) == (8, 0.0)


# From projections ---------------------------------------------------------------------------


def random_projections(kind, n_heads=2, n_dims=4, head_dim=3, value_dim=2, n_outputs=5, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {
        "W_Q": (n_heads, n_dims, head_dim), "W_K": (n_heads, n_dims, head_dim),
        "W_V": (n_heads, n_dims, value_dim), "W_O": (n_heads, value_dim, n_outputs),
        "b_Q": (n_heads, head_dim), "b_K": (n_heads, head_dim), "b_V": (n_heads, value_dim),
        "b_O": (n_outputs,),
    }  # fmt: skip
    arrays = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    return arrays | {"kind": kind, "scale": 1.7}


ALL = ("b_Q", "b_K", "b_V", "b_O")


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
        r"tokens of one width d": {"W_K": good["W_K"][:, 1:]},
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


def test_misuse_of_to_projections_is_named():
    layer = layer_of("linear")
    for argument in ("head_dim", "value_dim"):
        with pytest.raises(InvalidInput, match=f"{argument} must be an integer"):
            to_projections(layer, **{argument: 0})
    with pytest.raises(InvalidInput, match="tolerance must be a number between 0 and 1"):
        to_projections(layer, tolerance=2.0)
    with pytest.raises(InvalidType, match=r"got int.*\.layer"):
        to_projections(3)


def test_the_content_cannot_be_changed():
    found = to_projections(layer_of("linear"))
    with pytest.raises(ValueError, match="read-only"):
        found.W_Q[0, 0, 0] = 1.0
    assert repr(found) == "Projections(linear, 2 heads, head_dim=3, value_dim=3, scale=1)"
    assert str(found).startswith("2 linear heads as 2 heads with queries and keys of 3 coord")


# Forms --------------------------------------------------------------------------------------


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


# torch --------------------------------------------------------------------------------------


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
