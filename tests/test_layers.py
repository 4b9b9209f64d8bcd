"""Layers compute what their definitions say: linear ones of every form, softmax and rotary ones."""

import copy
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import polyattn as pa
from oracle import EPS, MODES
from polyattn.errors import InvalidInput, InvalidType, OutOfRange

seeds = st.integers(0, 2**32 - 1)


def linear(form=None, n_dims=3, context=None, **sizes):
    parts = oracle.random_layer(form or {}, n_dims, context, **sizes)
    return pa.LinearAttention(
        form=pa.Form(**(form or {})), n_dims=n_dims, n_context_dims=context, **parts
    )


def literal(layer, X, context=None):
    """Outputs (rows, e) of one sequence by loops."""
    if isinstance(layer, pa.LinearAttention):
        form, parts = oracle.fields_of(layer.form), oracle.fields_of_layer(layer)
        return oracle.forward(parts, X, form, context)
    turned = layer.frequencies is not None
    attn = list(zip(layer.query, layer.key, strict=True)) if turned else layer.attn
    tokens = oracle.with_constant(X) if layer.bias else X
    return oracle.softmax_forward(attn, layer.value, tokens, layer.mode, layer.frequencies)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def rows_of(outputs):
    return np.concatenate([np.atleast_2d(each) for each in outputs])


def same(found, expected, factor=1e3, eps=EPS):
    size = max(1.0, float(np.abs(np.asarray(expected)).max(initial=0.0)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=factor * eps * size)


def remade(layer, **changed):
    """The same layer with some parts exchanged."""
    if isinstance(layer, pa.LinearAttention):
        given = {"form": layer.form, "n_dims": layer.n_dims, "n_context_dims": layer.n_context_dims}
        return pa.LinearAttention(**oracle.fields_of_layer(layer) | given | changed)
    attn = layer.attn if layer.frequencies is None else (layer.query, layer.key)
    given = {"mode": layer.mode, "bias": layer.bias, "rotary": layer.frequencies}
    return pa.SoftmaxAttention(**{"attn": attn, "value": layer.value} | given | changed)


def softmax(mode="full", bias=False, seed=0, n_heads=3):
    return pa.data.random_softmax_layer(3, 2, n_heads, 3.0, None, mode, seed, bias=bias)


def rotary(mode="full", bias=False, seed=0, n_heads=3, frequencies=(1.0, 0.1)):
    return pa.data.random_softmax_layer(
        3, 2, n_heads, 3.0, 2 * len(frequencies), mode, seed, bias=bias, rotary=frequencies
    )


@pytest.mark.parametrize("n_heads", [2, 30])
@given(data=st.data(), drawn=oracle.forms(), X=oracle.sequences(max_sequences=3, max_tokens=5))
def test_outputs_and_coefficients_are_those_of_the_definition(n_heads, data, drawn, X):
    """A few heads are applied one by one, many are folded into coefficients first."""
    form, context = oracle.split_context(drawn)
    layer = linear(form, 3, context, n_heads=n_heads, seed=data.draw(seeds))
    Z = oracle.contexts_for(X, form, context)
    beside = [None] * len(X) if Z is None else Z
    expected = rows_of([literal(layer, x, z) for x, z in zip(X, beside, strict=True)])
    same(rows_of(layer(X, context=Z)), expected)
    parts = oracle.fields_of_layer(layer)
    coef = oracle.coefficients(parts, 3 if context is None else context, form)
    same(layer.coef, coef)
    assert not layer.coef.flags.writeable
    same(oracle.design(X, form, Z) @ oracle.features_of(layer.coef, form), expected)


DISTANT = [
    {"mode": "causal", "window": 70, "mean": True}, {"mode": "causal", "lags": 3, "window": 68},
    {"mode": "causal", "decay": 0.95, "window": 65, "include_query": False},
]  # fmt: skip


@pytest.mark.parametrize(("n_dims", "n_heads"), [(12, 1), (2, 10)])
def test_borders_of_chunks_and_windows_of_long_sequences(n_dims, n_heads):
    """Of wide tokens heads are faster one by one, of narrow ones as coefficients."""
    for form in DISTANT:
        scales = np.arange(n_heads * oracle.n_scales(form)) % oracle.n_scales(form)
        layer = linear(form, n_dims, n_heads=len(scales), n_outputs=n_dims)
        layer = remade(layer, head_scales=scales)
        for length in (7, 72):
            X = np.random.default_rng(length).standard_normal((length, n_dims))
            same(np.atleast_2d(layer(X)), literal(layer, X))


@pytest.mark.parametrize("make", [softmax, rotary])
def test_long_sequences_need_no_square_of_their_length(make):
    """Logits of 3,000 x 3,000 would be 72 MB, in several copies."""
    layer, X = make("causal", n_heads=1), np.random.default_rng(0).standard_normal((1, 3000, 3))
    tracemalloc.start()
    outputs = layer(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6
    for t in (0, 19, 2999):
        np.testing.assert_allclose(outputs[0, t], layer(X[0, : t + 1])[-1], atol=1e-13)


@pytest.mark.parametrize("mode", MODES)
def test_tokens_far_larger_than_the_others_take_no_digits_with_them(mode):
    """What leaves a window, or is not attended to, is never subtracted."""
    form = {"mode": mode, "include_query": False, **({} if mode == "full" else {"window": 3})}
    for n_heads in (1, 30):
        layer = linear(form, 2, n_heads=n_heads, n_outputs=1, seed=2)
        X = np.random.default_rng(3).standard_normal((9, 2))
        X[2] *= 1e9
        expected = literal(layer, X)
        np.testing.assert_allclose(np.atleast_2d(layer(X)), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["linear", "context", "softmax", "rotary"])
def test_outputs_have_the_form_of_the_sequences(kind, mode):
    rng, form = np.random.default_rng(0), {"mode": mode, "skip": True, "bias": True}
    X, Z = (rng.standard_normal((5, 6, d)).astype(np.float32) for d in (3, 4))
    layer = {
        "linear": lambda: linear(form), "context": lambda: linear(form, context=4),
        "softmax": lambda: softmax(mode, bias=True), "rotary": lambda: rotary(mode, bias=True),
    }[kind]()  # fmt: skip

    def call(tokens, beside):
        return layer(tokens, context=beside) if kind == "context" else layer(tokens)

    expected = call(X.astype(np.float64), Z.astype(np.float64))
    assert expected.shape == ((5, 2) if mode == "last" else (5, 6, 2))
    for found in (call(list(X), list(Z)), call(pa.SequenceBatch.from_array(X), Z)):
        assert isinstance(found, list) == (mode != "last")
        np.testing.assert_allclose(np.array(found), expected, rtol=1e-12, atol=1e-13)
    lengths = (6, 1, 3, 6, 1)
    ragged, others = ([z[:n] for z, n in zip(Y, lengths, strict=True)] for Y in (X, Z))
    for i, outputs in enumerate(call(ragged, others)):
        assert outputs.shape == ((2,) if mode == "last" else (lengths[i], 2))
        np.testing.assert_allclose(outputs, call(ragged[i], others[i]), rtol=1e-12, atol=1e-13)


def test_what_float64_cannot_hold_is_refused():
    layer = linear({"skip": True, "intercept": True}, 2, n_outputs=1)
    X = np.random.default_rng(0).standard_normal((4, 2))
    same(layer(1e-150 * X), layer.intercept)
    with pytest.raises(OutOfRange, match="outputs"):
        layer(X * 1e300)
    with pytest.raises(OutOfRange, match="float64"):
        pa.SoftmaxAttention(np.eye(2), 1e200 * np.eye(2))(np.full((1, 2, 2), 1e200))


@pytest.mark.parametrize("mode", MODES)
@given(seed=seeds, bias=st.booleans())
def test_softmax_and_rotary_outputs_are_those_of_the_definition(mode, seed, bias):
    rng = np.random.default_rng(seed)
    n_heads, n_dims, n_outputs, half = rng.integers(1, 4, size=4)
    size = 10.0 ** rng.integers(-3, 3)
    attn = size * rng.standard_normal((n_heads, n_dims + bias, n_dims + bias))
    query, key = rng.standard_normal((2, n_heads, n_dims + bias, 2 * half))
    value = rng.standard_normal((n_heads, n_dims + bias, n_outputs))
    frequencies = rng.standard_normal(half) * rng.integers(0, 2, half)
    X = [rng.standard_normal((length, n_dims)) for length in rng.integers(1, 6, size=4)]
    for heads, turns in ((attn, None), ((size * query, key), frequencies)):
        layer = pa.SoftmaxAttention(heads, value, mode, bias, rotary=turns)
        for x, found in zip(X, layer(X), strict=True):
            atol = 1e-12 * np.abs(value).sum()
            np.testing.assert_allclose(np.atleast_2d(found), literal(layer, x), rtol=0, atol=atol)


def test_attention_at_an_offset_makes_the_logits():
    layer = rotary(bias=True)
    np.testing.assert_allclose(layer.attn, layer.query @ layer.key.swapaxes(1, 2), atol=1e-14)
    for offset in (0, 5):
        turned = layer.query @ oracle.rotation(layer.frequencies, offset)
        wanted = turned @ layer.key.swapaxes(1, 2)
        np.testing.assert_allclose(layer.attn_at(offset), wanted, atol=1e-14)
    np.testing.assert_array_equal(softmax().attn_at(7), softmax().attn)


def test_frequencies_are_given_or_made_from_theta():
    pair, value = tuple(np.ones((2, 2, 4, 6))), np.ones((2, 4, 6))
    layer = pa.SoftmaxAttention(pair, value, rotary=100.0)
    np.testing.assert_allclose(layer.frequencies, [1.0, 100 ** (-1 / 3), 100 ** (-2 / 3)])
    for given_as in (layer.frequencies, layer.frequencies.tolist(), np.float32(100)):
        assert pa.SoftmaxAttention(pair, value, rotary=given_as) == layer


def test_layers_are_equal_where_all_their_parts_are():
    form = {"mode": "causal", "decay": (0.5, 0.9), "skip": True, "intercept": True}
    one, turned, plain = linear(form, 3, 2), rotary(), softmax()
    pair, parts = (turned.query, turned.key), {"value": turned.value, "rotary": turned.frequencies}
    layers = [
        one, remade(one, attn=2 * one.attn), remade(one, value=2 * one.value),
        remade(one, skip=one.skip + 1), remade(one, intercept=one.intercept + 1),
        remade(one, head_scales=1 - one.head_scales),
        remade(one, form=pa.Form(**form | {"decay": (0.5, 0.8)})), linear(form, 3, 3),
        plain, softmax("causal"), pa.LinearAttention(plain.attn, plain.value, "full"),
        turned, pa.SoftmaxAttention(pair, turned.value, rotary=2 * turned.frequencies),
        pa.SoftmaxAttention((2 * turned.query, turned.key / 2), **parts),
        pa.SoftmaxAttention(turned.attn, turned.value),
    ]  # fmt: skip
    for i, layer in enumerate(layers):
        assert [other == layer for other in layers] == [i == j for j in range(len(layers))]
        assert hash(copy.deepcopy(layer)) == hash(layer)


ATTN, VALUE, TWO = np.ones((2, 3, 3)), np.ones((2, 3, 1)), pa.Form("causal", decay=[0.5, 0.9])
QUERY, KEY = np.ones((2, 2, 3, 4))
WRONG_LINEAR = [
    ({"mode": "full", "form": pa.Form()}, "mode"), ({"form": TWO}, "head_scales"),
    ({"form": pa.Form(skip=True), "skip": np.ones(3)}, "skip"), ({"value": VALUE[:1]}, "attn"),
    ({"form": pa.Form(key=[0, 1])}, "attn"), ({"attn": ATTN * np.nan}, "attn"),
    ({"form": pa.Form(query=[0], key=[1], value=[2])}, "n_dims"),
    ({"attn": ATTN[:, :1, :1], "value": VALUE[:, :1], "bias": True}, "bias"),
]  # fmt: skip
WRONG_ROTARY = [
    ({"attn": ATTN}, "W_Q"), ({"attn": (QUERY, KEY[:1])}, "value"), ({"rotary": 0.0}, "theta"),
    ({"attn": (QUERY[..., :3], KEY[..., :3])}, "even"), ({"rotary": [1.0]}, "2 frequencies"),
    ({"rotary": [1.0, 1e7]}, "rotary"),
]  # fmt: skip


def test_misuse_is_named():
    plain = {"attn": ATTN, "value": VALUE}
    turned = {"attn": (QUERY, KEY), "value": np.ones((2, 3, 2)), "rotary": 10.0}
    several = [(pa.LinearAttention, plain | wrong, word) for wrong, word in WRONG_LINEAR]
    several += [(pa.SoftmaxAttention, turned | wrong, word) for wrong, word in WRONG_ROTARY]
    causal, beside = linear({"mode": "causal"}), linear({"mode": "causal"}, context=2)
    wild = pa.data.random_layer(2, form=pa.Form(key=lambda x: np.where(x > 5, np.nan, x)))
    X, Z = np.ones((4, 5, 3)), np.ones((4, 5, 2))
    several += [
        (causal, {"X": X, "context": Z}, "context"),
        (beside, {"X": X, "context": X}, "2 coordinates; got 3"),
        (beside, {"X": X, "context": Z[:3]}, "4 sequences but context has 3"),
        (beside, {"X": X, "context": Z[:, :4]}, "5 tokens in X but 4"),
        (beside, {"X": X, "context": Z * np.nan}, "NaN"),
        (softmax(), {"X": X * np.nan}, "NaN"), (wild, {"X": 9.0 * Z}, "NaN"),
        (pa.softmax.identifiable_heads, {"layer": rotary()}, "rotary"),
        (pa.softmax.non_degeneracy, {"layer": rotary(), "X": X}, "rotary"),
    ]  # fmt: skip
    for call, arguments, word in several:
        with pytest.raises((InvalidInput, InvalidType), match=word):
            call(**arguments)
