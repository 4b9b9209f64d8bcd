"""Linear layers of every form: outputs, shapes, sizes, comparison, files and errors."""

from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from form_cases import CASES, CHOICES, Case, square
from polyattn.errors import FileFormatError, InvalidInput, InvalidType, OutOfRange
from polyattn.form import Form, maps
from polyattn.form.form import Scale
from polyattn.model import by_heads, linear
from polyattn.model import layer as blocks
from polyattn.model.forward import coef_forward
from polyattn.reference import forms as reference
from polyattn.sequences import MODES, SequenceBatch

EPS = float(np.finfo(np.float64).eps)

# One kind of data is enough where nothing depends on the lengths.
EACH_FORM = [case for case in CASES if case.kind == "ragged"]


def layer_of(case: Case, n_heads: int = 3) -> pa.LinearAttention:
    sizes = {"n_dims": case.n_dims, "n_context_dims": case.n_context_dims}
    return pa.LinearAttention(form=case.form, **sizes, **case.heads(n_heads))


def literal(layer: pa.LinearAttention, X: np.ndarray, Z: np.ndarray | None = None) -> np.ndarray:
    """Outputs (rows, e) of one sequence by the reference."""
    form = {name: getattr(layer.form, name) for name in reference.DEFAULTS}
    more = (layer.head_scales, layer.skip, layer.intercept)
    return np.atleast_2d(reference.forward(layer.attn, layer.value, X, form, Z, *more))


def joined(outputs) -> np.ndarray:
    return np.concatenate(outputs) if isinstance(outputs, list) else outputs


def close(found, expected, factor=1e3) -> None:
    size = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=factor * EPS * size)


@pytest.fixture(params=[True, False], ids=["heads", "coefficients"])
def way(request, monkeypatch):
    """Either way of computing, whatever is faster."""
    monkeypatch.setattr(linear, "heads_are_faster", lambda *_: request.param)
    return request.param


# Outputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_are_those_of_the_reference(case, way, monkeypatch):
    monkeypatch.setattr(by_heads, "CHUNK", 32 if case.kind == "equal" else 2)
    layer = layer_of(case)
    pairs = list(zip(case.sequences, case.contexts, strict=True))
    expected = np.concatenate([literal(layer, X, Z) for X, Z in pairs])
    close(joined(layer(case.sequences, context=case.context)), expected)
    if not way:
        close(coef_forward(case.batch, layer.coef, layer.layout, case.context), expected)


@pytest.mark.parametrize("case", EACH_FORM, ids=str)
def test_coefficients_are_those_of_the_reference(case):
    layer = layer_of(case)
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
        heads = by_heads.Heads(layer.attn, layer.value, layer.head_scales)
        return by_heads.heads_are_faster(layer.layout, heads)

    for mode in MODES:
        assert faster(1, Form(mode=mode))
        assert not faster(200, Form(mode=mode))
    assert faster(1, Form(mode="causal", window=8))
    assert not faster(1, Form(mode="causal", value=[0], key=[1], query=[2]))


# Shapes ----------------------------------------------------------------------------------------


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


# Sizes -----------------------------------------------------------------------------------------

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
    layer = layer_of(case)
    scaled = replace_heads(layer, np.ldexp(layer.attn, -3 * power // 2), layer.value)
    scaled = replace_heads(scaled, scaled.attn, np.ldexp(layer.value, -3 * power // 2))
    outputs = layer(case.sequences, context=case.context)
    Z = None if case.context is None else [np.ldexp(z, power) for z in case.contexts]
    found = scaled([np.ldexp(x, power) for x in case.sequences], context=Z)
    np.testing.assert_array_equal(joined(found), joined(outputs))


def replace_heads(layer, attn, value, **others):
    content = {"skip": layer.skip, "intercept": layer.intercept, **others}
    return pa.LinearAttention(
        attn, value, form=layer.form, n_dims=layer.n_dims, n_context_dims=layer.n_context_dims,
        head_scales=layer.head_scales, **content,
    )  # fmt: skip


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


def test_maps_are_applied_to_the_tokens_as_they_are():
    layer = pa.data.random_layer(2, 1, form=Form(key=maps.polynomial(2), query=maps.elu1()))
    X = np.random.default_rng(0).standard_normal((5, 2)) * 1e30
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(layer(X), literal(layer, X)[0], rtol=1e-12)


# Comparison ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", EACH_FORM, ids=str)
def test_equality_and_functions(case):
    layer = layer_of(case)
    same = replace_heads(layer, layer.attn + 0.0, layer.value.copy())
    assert layer == same
    assert hash(layer) == hash(same)
    assert layer.form == case.form
    assert (layer.mode, layer.bias) == (case.form.mode, case.form.bias)
    for other in (replace_heads(layer, layer.attn * 2, layer.value), "layer"):
        assert layer != other
    # Heads rescaled and in another order: the same function.
    order = [2, 0, 1]
    moved = pa.LinearAttention(
        layer.attn[order] * 4, layer.value[order] / 4, form=case.form, n_dims=case.n_dims,
        n_context_dims=case.n_context_dims, head_scales=layer.head_scales[order],
        skip=layer.skip, intercept=layer.intercept,
    )  # fmt: skip
    assert moved != layer
    assert pa.same_function(layer, moved)
    assert not pa.same_function(layer, replace_heads(layer, layer.attn * 1.001, layer.value))
    for name in ("skip", "intercept"):
        if getattr(layer, name) is not None:
            changed = replace_heads(
                layer, layer.attn, layer.value, **{name: getattr(layer, name) + 1}
            )
            assert changed != layer
            assert not pa.same_function(layer, changed)


def test_scales_of_heads_count():
    attn, value = np.ones((2, 2, 2)), np.ones((2, 2, 1))
    form = Form(mode="causal", decay=[0.5, 0.9])
    one, other = (
        pa.LinearAttention(attn, value, form=form, head_scales=scales)
        for scales in ([0, 1], [1, 1])
    )
    assert one != other
    assert not pa.same_function(one, other)
    assert pa.coefficient_distance(one, other) > 1
    assert pa.LinearAttention(attn, value).head_scales.tolist() == [0, 0]


SAME = {
    "one token": (Form(mode="causal", window=1), [(0, 1, 2), (2, 1, 0)]),
    "lag 0": (Form(mode="causal", lags=2), [(0, 1, 2), (1, 0, 2)]),
    "one matrix": (Form(key=np.diag([1.0, 2.0, 4.0])), [(0, 1, 2), (0, 2, 1)]),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_function_with_other_coefficients(name):
    """v_s[c] k_s[b] q_t[l] is the same product in another order, where all is seen of one token."""
    form, entries = SAME[name]
    layers = []
    for place, factor in ((entries[0], 1.0), (entries[1], 1.0), (entries[1], 1.001)):
        query, key, value = place
        attn, values = np.zeros((3, 3)), np.zeros((3, 1))
        # Keys that are multiplied by 1, 2, 4 first.
        weight = 1.0 if form.key is None else form.key[key, key]
        attn[query, key], values[value] = factor / weight, 1.0
        layers.append(pa.LinearAttention(attn, values, form=form, head_scales=[0]))
    one, same, other = layers
    assert pa.coefficient_distance(one, same) > 0.1
    assert pa.same_function(one, same)
    assert not pa.same_function(one, other)
    assert pa.same_function(one, other, tolerance=0.01)


def test_constants_that_a_mean_leaves_as_they_are():
    form = Form(mean=True, bias=True, skip=True)
    attn, value = np.zeros((1, 3, 3)), np.zeros((1, 3, 1))
    skip = np.array([[2.0], [3.0], [4.0]])
    linear_map = pa.LinearAttention(attn, value, form=form, skip=skip)
    attn[0, :, 2], value[0, 2] = skip[:, 0], 1.0
    by_head = pa.LinearAttention(attn, value, form=form)
    assert pa.same_function(by_head, linear_map)
    # Without a token to attend to, only the linear map is left.
    alone = Form(mean=True, bias=True, skip=True, include_query=False)
    linear_map = pa.LinearAttention(attn, value * 0, form=alone, skip=skip)
    assert not pa.same_function(pa.LinearAttention(attn, value, form=alone), linear_map)


def test_layers_of_different_forms_are_not_compared():
    one = pa.data.random_layer(3, form=Form(mode="causal", decay=0.5))
    other = pa.data.random_layer(3, form=Form(mode="causal", decay=0.6))
    with pytest.raises(InvalidInput, match=r"their form are .*decay=0.5.* and .*decay=0.6"):
        pa.same_function(one, other)
    beside = pa.data.random_layer(3, form=Form(mode="causal", decay=0.5), n_context_dims=3)
    with pytest.raises(InvalidInput, match="n_context_dims are None and 3"):
        pa.coefficient_distance(one, beside)


def test_text():
    layer = pa.data.random_layer(3, 1, 2, form=Form(mode="causal", decay=0.9), n_context_dims=4)
    words = "2 heads, 3 -> 1, context of 4, Form(mode='causal', decay=0.9)"
    assert repr(layer) == f"LinearAttention({words})"
    assert "context of 4 coordinates, decay 0.9" in " ".join(str(layer).split())
    assert layer.to_dict()["form"] == "Form(mode='causal', decay=0.9)"
    assert layer.to_dict()["n_context_dims"] == 4
    assert set(layer.to_full_dict()) >= {"attn", "value", "n_heads", "form"}
    plain = pa.LinearAttention(np.eye(2), np.eye(2), form=Form(bias=True))
    assert repr(plain) == "LinearAttention(1 head, 1 -> 2, mode 'last', bias)"
    assert "form" not in plain.to_dict()


# Files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", EACH_FORM, ids=str)
def test_files_hold_every_form(case, tmp_path):
    layer = layer_of(case)
    path = tmp_path / "layer.safetensors"
    if case.name == "own-function":
        with pytest.raises(InvalidInput, match=r"function of your own.*cannot be stored"):
            pa.save(layer, path)
        assert not path.exists()
        return
    pa.save(layer, path)
    loaded = pa.load(path)
    assert loaded == layer
    assert loaded.form == layer.form
    np.testing.assert_array_equal(loaded.coef, layer.coef)


def test_records_of_the_papers_layer_are_as_before():
    layer = pa.data.random_layer(3, mode="full", bias=True)
    assert layer.to_record().metadata == {"mode": "full", "bias": True}
    assert set(layer.to_record().arrays) == {"attn", "value"}
    assert pa.LinearAttention.from_record(layer.to_record()) == layer


WRONG = {
    "form": ({"decay": 0.0}, "describes no form"),
    "form ": ({"mode": "causal"}, "form.mode"),
    "form  ": ("decay", "form must be an object"),
    "form   ": ({"colour": 1}, "describes no form"),
    "form    ": ({"query": 7}, "describes no form"),
    "n_dims": (0, "n_dims must be an integer >= 1"),
    "n_dims ": (5, "attn must have shape"),
    "n_context_dims": (-1, "n_context_dims must be an integer"),
    "head_scales": ([0, 9], "head_scales must lie between"),
    "head_scales ": ([0], "head_scales must be"),
    "head_scales  ": ([0, "1"], r"head_scales\[1\] must be an integer"),
    "colour": (1, "unknown field"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_records_are_refused(name):
    layer = pa.data.random_layer(3, form=Form(decay=[0.5, 0.9], skip=True))
    record, (content, message) = layer.to_record(), WRONG[name]
    assert pa.LinearAttention.from_record(record) == layer
    wrong = replace(record, metadata=record.metadata | {name.strip(): content})
    with pytest.raises((FileFormatError, InvalidInput), match=message):
        pa.LinearAttention.from_record(wrong)
    for arrays in ({"skip": np.zeros(3)}, {"intercept": np.zeros(3)}, {"other": np.zeros(3)}):
        with pytest.raises((FileFormatError, InvalidInput), match=next(iter(arrays))):
            pa.LinearAttention.from_record(replace(record, arrays=record.arrays | arrays))


# Errors ----------------------------------------------------------------------------------------

ATTN, VALUE = np.ones((2, 3, 3)), np.ones((2, 3, 1))
TWO = Form(mode="causal", decay=[0.5, 0.9])

MISUSE = {
    "twice": ({"mode": "full", "form": Form()}, "mode was given beside a form"),
    "no form": ({"form": "last"}, "form must be a polyattn.Form"),
    "loo": ({"form": Form(decay="loo")}, "decay='loo' is chosen by fit"),
    "scales missing": ({"form": TWO}, "give head_scales"),
    "scales short": ({"form": TWO, "head_scales": [0]}, "2 integers, one for each head"),
    "scales large": ({"form": TWO, "head_scales": [0, 2]}, "between 0 and 1"),
    "scales floats": ({"form": TWO, "head_scales": [0.0, 1.0]}, "2 integers"),
    "skip": ({"skip": np.ones((3, 1))}, r"skip was given.*Form\(skip=True\)"),
    "intercept": ({"intercept": [1.0]}, r"Form\(intercept=True\)"),
    "skip shape": ({"form": Form(skip=True), "skip": np.ones(3)}, r"shape \(3, 1\)"),
    "skip nan": ({"form": Form(skip=True), "skip": np.full((3, 1), np.nan)}, "skip contains NaN"),
    "intercept shape": ({"form": Form(intercept=True), "intercept": 1.0}, r"shape \(1,\)"),
    "widths": ({"form": Form(key=[0, 1])}, r"attn must have shape \(H, 3, 2\).*got \(2, 3, 3\)"),
    "constants": ({"form": Form(bias=True, key=[0])}, "constants included"),
    "n_dims": ({"form": Form(query=[0], key=[1], value=[2])}, "give n_dims"),
    "n_dims 4": ({"n_dims": 4}, r"attn must have shape \(H, 4, 4\)"),
    "n_dims 0": ({"n_dims": 0}, "n_dims must be an integer of at least 1"),
    "context 0": ({"n_context_dims": 0}, "n_context_dims must be an integer"),
    "coordinates": ({"form": Form(value=[7])}, "value must name coordinates"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_of_layers_is_named(name):
    arguments, message = MISUSE[name]
    with pytest.raises((InvalidInput, InvalidType), match=message):
        pa.LinearAttention(ATTN, VALUE, **arguments)


def test_numbers_of_heads_must_agree():
    with pytest.raises(InvalidInput, match=r"got \(2, 3, 3\) and \(1, 3, 1\)"):
        pa.LinearAttention(ATTN, VALUE[:1], form=Form(mean=True))


def test_misuse_of_context_is_named():
    plain = pa.data.random_layer(3, form=Form(mode="causal"))
    beside = pa.data.random_layer(3, form=Form(mode="causal"), n_context_dims=2)
    X, Z = np.ones((4, 5, 3)), np.ones((4, 5, 2))
    with pytest.raises(InvalidInput, match="it takes no context"):
        plain(X, context=Z)
    with pytest.raises(InvalidInput, match="give them as context"):
        beside(X)
    with pytest.raises(InvalidInput, match="context must have tokens of 2 coordinates; got 3"):
        beside(X, context=X)
    with pytest.raises(InvalidInput, match="X has 4 sequences but context has 3"):
        beside(X, context=Z[:3])
    with pytest.raises(InvalidInput, match="sequence 0 has 5 tokens in X but 4 in context"):
        beside(X, context=Z[:, :4])
    with pytest.raises(InvalidInput, match=r"context must have shape .*One sequence is"):
        beside(X, context=Z[0])
    with pytest.raises(InvalidInput, match="X has 1 sequence but context has 4"):
        beside(X[0], context=Z)
    with pytest.raises(InvalidInput, match="contains NaN or infinity"):
        beside(X, context=Z * np.nan)


def test_maps_that_fail_are_named():
    layer = pa.data.random_layer(2, form=Form(key=square))
    with pytest.raises(InvalidInput, match="X must have tokens of 2 coordinates"):
        layer(np.ones((3, 4, 3)))
    wild = pa.data.random_layer(2, form=Form(key=lambda x: np.where(x > 5, np.nan, x)))
    with pytest.raises(InvalidInput, match="NaN or infinity"):
        wild(np.full((1, 2, 2), 9.0))


def test_scales():
    assert Scale(0, None).attended(4) == slice(0, 4)
    assert Scale(1, 3).attended(4) == slice(1, 3)
    assert Scale(2, 3).attended(1) == slice(0, 0)
    assert Scale(0, None).weights(np.arange(3)) is None
    np.testing.assert_array_equal(Scale(0, None, 0.5).weights(np.arange(3)), [1, 0.5, 0.25])


# Planted tasks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", EACH_FORM, ids=str)
def test_planted_layers_of_every_form(case):
    task = pa.data.planted(
        4, (1, 6), case.n_dims, 2, 2, random_state=5,
        form=case.form, n_context_dims=case.n_context_dims,
    )  # fmt: skip
    layer = task.layer
    assert (layer.form, layer.n_dims, layer.n_outputs) == (case.form, case.n_dims, 2)
    assert layer.n_heads == 2 * layer.layout.n_scales
    assert (task.context is None) == (case.n_context_dims is None)
    beside = [None] * 4 if task.context is None else list(task.context)
    expected = [literal(layer, x, z) for x, z in zip(task.X, beside, strict=True)]
    close(joined(task.Y), np.concatenate(expected))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [False, True])
def test_a_plain_form_plants_what_mode_and_bias_do(mode, bias):
    sizes = (5, 4, 3, 2, 2)
    one = pa.data.planted(*sizes, mode, 0.1, 3, bias=bias)
    other = pa.data.planted(*sizes, noise=0.1, random_state=3, form=Form(mode=mode, bias=bias))
    assert one.layer == other.layer
    np.testing.assert_array_equal(one.X, other.X)
    np.testing.assert_array_equal(one.Y, other.Y)
    assert one.context is None


def test_planted_contexts():
    form = Form(mode="causal", decay=0.5)
    equal = pa.data.planted(5, 4, 3, form=form, n_context_dims=2)
    assert equal.context.shape == (5, 4, 2)
    ragged = pa.data.planted(50, (1, 9), 3, form=form, n_context_dims=2, noise=0.1)
    np.testing.assert_array_equal(ragged.context.lengths, ragged.X.lengths)
    free = pa.data.planted(50, (1, 9), 3, form=Form(mode="full"), n_context_dims=2)
    assert np.any(free.context.lengths != free.X.lengths)
    short = pa.data.planted(5, 4, 3, mode="full", n_context_dims=2)
    assert (short.layer.form, short.layer.n_context_dims) == (Form(mode="full"), 2)
    with pytest.raises(InvalidInput, match="mode was given beside a form"):
        pa.data.planted(5, 4, 3, mode="full", form=form)
    with pytest.raises(InvalidInput, match="n_context_dims must be an integer"):
        pa.data.planted(5, 4, 3, n_context_dims=0)
