"""Outputs of linear layers of every form: those of the reference, in linear time, at all sizes."""

import numpy as np
import pytest

import polyattn as pa
from form_cases import CASES, CHOICES
from form_layers import EACH_FORM, close, joined, literal, replace_heads
from polyattn.errors import OutOfRange
from polyattn.form import Form, maps
from polyattn.model import by_heads, linear
from polyattn.model import layer as blocks
from polyattn.model.forward import coef_forward
from polyattn.reference import forms as reference
from polyattn.sequences import MODES, SequenceBatch


@pytest.fixture(params=[True, False], ids=["heads", "coefficients"])
def way(request, monkeypatch):
    """Either way of computing, whatever is faster."""
    monkeypatch.setattr(linear, "heads_are_faster", lambda *_: request.param)
    return request.param


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_are_those_of_the_reference(case, monkeypatch):
    monkeypatch.setattr(by_heads, "CHUNK", 32 if case.kind == "equal" else 2)
    layer = case.layer()
    pairs = list(zip(case.sequences, case.contexts, strict=True))
    expected = np.concatenate([literal(layer, X, Z) for X, Z in pairs])
    # Either way of computing, whatever is faster.
    for by_each_head in (True, False):
        monkeypatch.setattr(linear, "heads_are_faster", lambda *_, way=by_each_head: way)
        close(joined(layer(case.sequences, context=case.context)), expected)
    close(coef_forward(case.batch, layer.coef, layer.layout, case.context), expected)


@pytest.mark.parametrize("case", EACH_FORM, ids=str)
def test_coefficients_are_those_of_the_reference(case):
    layer = case.layer()
    n_dims = case.n_dims if case.n_context_dims is None else case.n_context_dims
    more = (layer.head_scales, layer.skip, layer.intercept)
    close(layer.coef, reference.coefficients(layer.attn, layer.value, n_dims, case.plain, *more))
    assert layer.coef.shape == (2, layer.layout.n_sums, layer.layout.n_queries)
    assert not layer.coef.flags.writeable


LONG = {
    "decay": {"decay": 0.97},
    "small-decay": {"decay": 1e-30},
    "decays": {"decay": [0.5, 0.99]},
    "window": {"window": 70, "mean": True},
    "decay-window": {"decay": 0.95, "window": 65, "include_query": False},
    "lags": {"lags": 3, "window": 90},
    "others": {"include_query": False, "mean": True},
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.usefixtures("way")
def test_chunks_and_windows_of_long_sequences(name):
    form = Form(mode="causal", **LONG[name])
    layer = pa.data.random_layer(2, 1, form=form, random_state=1)
    rng = np.random.default_rng(0)
    for length in (31, 64, 65, 135):
        X = rng.standard_normal((length, 2))
        close(layer(X), literal(layer, X))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.usefixtures("way")
def test_tokens_far_larger_than_the_others_take_no_digits_with_them(mode):
    """What leaves a window, or is not attended to, is never subtracted."""
    window = {} if mode == "full" else {"window": 3}
    form = Form(mode=mode, include_query=False, **window)
    layer = pa.data.random_layer(2, 1, form=form, random_state=2)
    X = np.random.default_rng(3).standard_normal((9, 2))
    X[2] *= 1e9
    np.testing.assert_allclose(np.atleast_2d(layer(X)), literal(layer, X), rtol=1e-9, atol=1e-12)


def test_long_sequences_need_no_square_of_their_length():
    # 40,000 x 40,000 scores would be 13 GB.
    X = np.random.default_rng(0).standard_normal((1, 40_000, 3))
    for fields in ({"decay": 0.9}, {"window": 5_000}, {"lags": 3}):
        layer = pa.data.random_layer(3, 1, form=Form(mode="causal", **fields))
        assert layer(X).shape == (1, 40_000, 1)


def test_heads_or_coefficients_whichever_is_faster():
    def faster(n_heads, form):
        layer = pa.data.random_layer(12, 12, n_heads, form=form)
        heads = by_heads.heads_by_scale(form, layer.attn, layer.value, layer.head_scales)
        return by_heads.heads_are_faster(layer.layout, heads)

    for mode in MODES:
        assert faster(1, Form(mode=mode))
        assert not faster(200, Form(mode=mode))
    assert faster(1, Form(mode="causal", window=8))
    assert not faster(1, Form(mode="causal", value=[0], key=[1], query=[2]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("context", [False, True])
def test_outputs_have_the_form_of_the_sequences(mode, context):
    form = Form(mode=mode, skip=True, bias=True)
    layer = pa.data.random_layer(3, 2, form=form, n_context_dims=4 if context else None)
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((5, 6, 3)), rng.standard_normal((5, 6, 4)) if context else None
    others = [None] * 5 if Z is None else Z
    expected = np.array([literal(layer, x, z) for x, z in zip(X, others, strict=True)])
    expected = expected[:, 0] if mode == "last" else expected
    found = layer(X, context=Z)
    assert found.shape == expected.shape
    close(found, expected)
    one = layer(X[0], context=Z[0] if context else None)
    assert one.shape == expected[0].shape
    close(one, expected[0])
    kinds = [None] if Z is None else [Z, list(Z), SequenceBatch.from_array(Z)]
    for some in (list(X), SequenceBatch.from_array(X)):
        for beside in kinds:
            found = layer(some, context=beside)
            assert isinstance(found, list) == (mode != "last")
            close(np.array(found), expected)
    short = X.astype(np.float32)
    beside = None if Z is None else Z.astype(np.float32)
    wide = None if Z is None else beside.astype(np.float64)
    np.testing.assert_array_equal(
        layer(short, context=beside), layer(short.astype(np.float64), context=wide)
    )


def test_ragged_sequences_are_taken_together_by_their_lengths(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_TOKENS", 7)
    rng = np.random.default_rng(1)
    lengths, others = [3, 1, 3, 8, 1, 3, 3], [2, 4, 2, 1, 4, 5, 2]
    X = [rng.standard_normal((n, 2)) for n in lengths]
    Z = [rng.standard_normal((n, 3)) for n in others]
    groups = [which.tolist() for which in blocks.equal_groups(np.array(lengths), np.array(others))]
    assert sorted(groups) == [[0, 2], [1], [3], [4], [5], [6]]
    for mode in ("last", "full"):
        layer = pa.data.random_layer(2, 1, form=Form(mode=mode), n_context_dims=3)
        found = joined(layer(X, context=Z))
        close(found, np.concatenate([literal(layer, x, z) for x, z in zip(X, Z, strict=True)]))


HOMOGENEOUS = [
    case
    for case in CASES
    if case.kind == "equal"
    and case.name in CHOICES
    and not any(callable(getattr(case.form, role)) for role in ("query", "key", "value"))
    and not (case.form.bias or case.form.skip or case.form.intercept)
]


@pytest.mark.parametrize("power", [-332, 332])
@pytest.mark.parametrize("case", HOMOGENEOUS, ids=str)
@pytest.mark.usefixtures("way")
def test_powers_of_two_change_no_bit(case, power):
    layer = case.layer()
    scaled = replace_heads(layer, np.ldexp(layer.attn, -3 * power // 2), layer.value)
    scaled = replace_heads(scaled, scaled.attn, np.ldexp(layer.value, -3 * power // 2))
    outputs = layer(case.sequences, context=case.context)
    Z = None if case.context is None else [np.ldexp(z, power) for z in case.contexts]
    found = scaled([np.ldexp(x, power) for x in case.sequences], context=Z)
    np.testing.assert_array_equal(joined(found), joined(outputs))


@pytest.mark.parametrize("tokens", [-330, 330])
@pytest.mark.parametrize("fields", [{"skip": True}, {"intercept": True}, {"skip": True, "bias": 1}])
@pytest.mark.usefixtures("way")
def test_linear_terms_at_every_size(tokens, fields):
    """Heads in the units of the tokens: all parts of the outputs are of order one."""
    form = Form(mode="causal", **fields | {"bias": bool(fields.get("bias"))})
    layer = pa.data.random_layer(2, 2, form=form, random_state=3)
    X = np.random.default_rng(4).standard_normal((6, 2))
    powers = np.array([-tokens, -tokens, 0] if form.bias else [-tokens, -tokens])
    attn = np.ldexp(layer.attn, powers[:, None] + powers)
    value = np.ldexp(layer.value, powers[:, None])
    skip = None if layer.skip is None else np.ldexp(layer.skip, powers[:, None])
    scaled = replace_heads(layer, attn, value, skip=skip)
    try:
        found = scaled(np.ldexp(X, tokens))
    except OutOfRange:
        assert form.bias  # the constant beside such tokens
    else:
        close(found, literal(layer, X))


def test_heads_that_vanish_beside_the_linear_terms():
    layer = pa.data.random_layer(2, 1, form=Form(skip=True, intercept=True))
    X = np.random.default_rng(0).standard_normal((4, 2)) * 1e-150
    close(layer(X), layer.intercept)
    far = replace_heads(layer, layer.attn, layer.value, intercept=np.zeros(1))
    np.testing.assert_allclose(far(X), X[-1] @ layer.skip, rtol=1e-14)
    with pytest.raises(OutOfRange, match="outputs would be of size"):
        layer(X * 1e300)


@pytest.mark.parametrize("own", [-400, 0, 400])
@pytest.mark.parametrize("other", [-300, 300])
@pytest.mark.usefixtures("way")
def test_tokens_and_context_of_different_sizes(own, other):
    layer = pa.data.random_layer(2, 1, form=Form(mode="full"), n_context_dims=3)
    rng = np.random.default_rng(1)
    X, Z = rng.standard_normal((3, 4, 2)), rng.standard_normal((3, 5, 3))
    value = np.ldexp(layer.value, -other)
    scaled = replace_heads(layer, np.ldexp(layer.attn, -own - other), value)
    found = scaled(np.ldexp(X, own), context=np.ldexp(Z, other))
    np.testing.assert_array_equal(found, layer(X, context=Z))


@pytest.mark.parametrize("power", [-600, -400, 400, 600])
@pytest.mark.usefixtures("way")
def test_queries_and_keys_of_different_sizes_are_right_or_refused(power):
    layer = pa.data.random_layer(4, 1, form=Form(query=[0, 1], key=[2, 3], value=[2]))
    X = np.random.default_rng(1).standard_normal((3, 5, 4))
    scaled = replace_heads(layer, np.ldexp(layer.attn, -power), layer.value)
    far = np.ldexp(X, [power, power, 0, 0])
    if abs(power) > 450:
        with pytest.raises(OutOfRange, match="queries, keys and values differ in size"):
            scaled(far)
    else:
        np.testing.assert_allclose(scaled(far), layer(X), rtol=1e-12)
    # A coordinate that is not seen may have any size.
    unseen = pa.data.random_layer(4, 1, form=Form(query=[0], key=[2], value=[2]))
    np.testing.assert_array_equal(unseen(np.ldexp(X, [0, 900, 0, 0])), unseen(X))


@pytest.mark.parametrize("zero", [0, 1, 2])
@pytest.mark.usefixtures("way")
def test_zeros_beside_huge_numbers(zero):
    """Products of the others would overflow before they are multiplied by zero."""
    form = Form(query=[0], key=[1], value=[2], skip=True)
    layer = pa.data.random_layer(3, 1, form=form)
    X = np.random.default_rng(0).standard_normal((2, 4, 3)) * 1e200
    X[:, :, zero] = 0.0
    np.testing.assert_allclose(layer(X), X[:, -1, :1] @ layer.skip, rtol=1e-14)


def test_maps_are_applied_to_the_tokens_as_they_are():
    layer = pa.data.random_layer(2, 1, form=Form(key=maps.polynomial(2), query=maps.elu1()))
    X = np.random.default_rng(0).standard_normal((5, 2)) * 1e30
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(layer(X), literal(layer, X)[0], rtol=1e-12)
