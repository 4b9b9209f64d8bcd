"""Linear layers of every form compared: equal parameters, equal functions, and in words."""

import numpy as np
import pytest

import polyattn as pa
from form_layers import EACH_FORM, replace_heads
from polyattn.errors import InvalidInput
from polyattn.form import Form
from polyattn.form.layout import Layout
from polyattn.model import compare
from polyattn.model.compare import random_sequences
from polyattn.numerics import parallel


@pytest.mark.parametrize("case", EACH_FORM, ids=str)
def test_equality_and_functions(case):
    layer = case.layer()
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


@pytest.mark.parametrize("case", EACH_FORM[::4], ids=str)
@pytest.mark.parametrize("size", [1.0, 1e-170, 1e140])
def test_large_layers_are_compared_in_parts(case, size, monkeypatch):
    layer = case.layer()
    layer = replace_heads(layer, layer.attn * size, layer.value)
    others = [replace_heads(layer, layer.attn * 1.5, layer.value)]
    others += [
        replace_heads(layer, layer.attn, layer.value, **{name: getattr(layer, name) + 1})
        for name in ("skip", "intercept")
        if getattr(layer, name) is not None
    ]
    whole = [pa.coefficient_distance(layer, other) for other in others]
    monkeypatch.setattr(compare, "MOST_TOGETHER", 0)
    for n_numbers in (1, 40, 1 << 20):
        monkeypatch.setattr(compare, "PART_NUMBERS", n_numbers)
        parts = [pa.coefficient_distance(layer, other) for other in others]
        np.testing.assert_allclose(parts, whole, rtol=1e-12)
        assert pa.same_function(layer, layer)
        # Beside what is added to them, tiny heads are all the same.
        assert pa.same_function(layer, others[0]) == (size < 1e-9 and len(others) > 1)


def test_coefficients_that_do_not_fit_into_memory_are_refused(monkeypatch):
    rng = np.random.default_rng(0)
    layer = pa.LinearAttention(rng.standard_normal((1, 9, 9)), rng.standard_normal((1, 9, 2)))
    X = rng.standard_normal((20, 3, 9))
    monkeypatch.setattr(parallel, "physical_memory", lambda: 20_000)
    with pytest.raises(InvalidInput, match=r"coefficients of 9 .* 29 KB.* 20 KB.* attn and value"):
        _ = layer.coef
    for each in (layer, lambda X: X[:, -1, :2]):
        with pytest.raises(InvalidInput, match="an audit compares coefficients, 405 for each"):
            pa.audit(each, X, np.ones((20, 2)))
    monkeypatch.setattr(compare, "MOST_TOGETHER", 0)
    monkeypatch.setattr(compare, "PART_NUMBERS", 1)
    assert pa.coefficient_distance(layer, layer) == 0.0
    monkeypatch.setattr(parallel, "physical_memory", lambda: None)
    assert layer.coef.shape == (2, 45, 9)
    assert pa.audit(layer, X, np.ones((20, 2))).distance > 0


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


@pytest.mark.parametrize(
    "form",
    [Form(mode="causal", lags=300, key=[0], value=[1]), Form(decay=[0.5, 0.6, 0.7, 0.8])],
    ids=["lags", "decays"],
)
def test_sequences_for_comparison_are_few_and_long_enough(form):
    X, _ = random_sequences(Layout.of(form, 2))
    assert X.lengths.max() >= max(scale.start for scale in form.scales) + len(form.scales)
    assert X.lengths.sum() <= 20_000
    assert X.lengths.min() == 1


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
