"""Parity heads on all Boolean inputs, and what inputs can tell about a softmax layer."""

from importlib import import_module
from itertools import combinations, product

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.sequences import MODES, as_batch
from polyattn.softmax.hardness import parity_error_bound, parity_layer, parity_outputs
from polyattn.softmax.identifiability import visible
from polyattn.softmax.identifiability.identifiable_heads import identifiable_heads
from polyattn.softmax.identifiability.visible import jacobian_blocks, jacobian_rank

# (hidden, marker, n_dims, n_tokens): small enough for all 2^(n_tokens n_dims) inputs.
CASES = [
    ((1,), 0, 2, 2),
    ((0,), 2, 3, 3),
    ((0, 1, 3), 2, 4, 2),
    ((1, 2, 3), 0, 4, 3),
]


def all_inputs(n_tokens, n_dims):
    signs = np.array(list(product([-1.0, 1.0], repeat=n_tokens * n_dims)))
    return signs.reshape(-1, n_tokens, n_dims)


def parity(X, hidden):
    """(-1)^(number of ones among the hidden coordinates)."""
    return (-1.0) ** np.sum(X[:, :, list(hidden)] > 0, axis=2)


def mixed(X, marker):
    return np.abs(X[:, :, marker].sum(axis=1)) < X.shape[1]


@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0, 50.0])
@pytest.mark.parametrize(("hidden", "marker", "n_dims", "n_tokens"), CASES)
def test_the_closed_form_is_the_layer_on_all_inputs(hidden, marker, n_dims, n_tokens, beta):
    X = all_inputs(n_tokens, n_dims)
    layer = parity_layer(hidden, marker, 1, n_dims, beta, n_outputs=2)
    assert layer.n_heads == len(hidden)
    outputs = layer(X)
    np.testing.assert_allclose(
        outputs[..., 1], parity_outputs(X, hidden, marker, beta), rtol=0, atol=2e-15
    )
    assert not np.any(outputs[..., 0])


@pytest.mark.parametrize("beta", [0.3, 1.0, 2.0, 4.0, 20.0])
@pytest.mark.parametrize(("hidden", "marker", "n_dims", "n_tokens"), CASES)
def test_the_bound_holds_with_mixed_markers(hidden, marker, n_dims, n_tokens, beta):
    X = all_inputs(n_tokens, n_dims)
    outputs = parity_outputs(X, hidden, marker, beta)
    both = mixed(X, marker)
    error = np.abs(outputs - parity(X, hidden))[both].max()
    assert error <= parity_error_bound(len(hidden), beta, n_tokens) + 1e-15
    if len(hidden) == 1:
        # One head meets the bound: it cannot be improved.
        assert error == pytest.approx(parity_error_bound(1, beta, n_tokens), abs=1e-15)
    np.testing.assert_allclose(outputs[~both], -X[~both][:, :, marker], atol=1e-15)


def test_the_limit_has_no_correlation_with_low_degree():
    hidden, marker, n_dims, n_tokens = (0, 1, 3), 2, 4, 2
    X = all_inputs(n_tokens, n_dims)
    X = X[mixed(X, marker)]
    limit = parity_outputs(X, hidden, marker, 40.0)[:, 0]
    flat = X.reshape(len(X), -1)
    for degree in range(len(hidden)):
        for places in combinations(range(flat.shape[1]), degree):
            character = np.prod(flat[:, list(places)], axis=1)
            assert abs(np.mean(limit * character)) < 1e-14
    # Negative control: the parity itself is of degree 3.
    assert np.mean(limit * np.prod(flat[:, list(hidden)], axis=1)) == pytest.approx(-1.0)


def test_two_parities_have_no_correlation():
    X = all_inputs(2, 5)
    X = X[mixed(X, 4)]
    sets = list(combinations(range(4), 3))
    limits = [parity_outputs(X, hidden, 4, 40.0)[:, 1] for hidden in sets]
    np.testing.assert_allclose(np.inner(limits, limits) / len(X), np.eye(len(sets)), atol=1e-14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: parity_layer((0, 1), 2, 0, 3, 1.0), "odd number of different"),
        (lambda: parity_layer((), 2, 0, 3, 1.0), "odd number of different"),
        (lambda: parity_layer((0, 0, 1), 2, 0, 3, 1.0), "odd number of different"),
        (lambda: parity_layer((0,), 0, 0, 3, 1.0), "coordinate 0 is both"),
        (lambda: parity_layer((3,), 0, 0, 3, 1.0), "hidden must be a coordinate from 0 to 2"),
        (lambda: parity_layer((-1,), 0, 0, 3, 1.0), "hidden must be an integer"),
        (lambda: parity_layer((1,), 0, 2, 3, 1.0, n_outputs=2), "output must be a coordinate"),
        (lambda: parity_layer((1,), 0, 0, 3, 0.0), "beta must be"),
        (lambda: parity_layer((1,), 0, 0, 3, np.inf), "beta must be"),
        (lambda: parity_layer((1,), 0, 0, 3, True), "beta must be"),
        (lambda: parity_outputs(np.zeros((1, 2, 3)), (1,), 0, 1.0), "entries -1 and 1"),
        (lambda: parity_outputs(np.ones((2, 3)), (1,), 0, 1.0), r"shape \(N, k, d\)"),
        (lambda: parity_error_bound(3, 1.0, 1), "k must be an integer of at least 2"),
    ],
)
def test_misuse(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


# What inputs can tell about the heads of a layer ----------------------------------------------


def names(report):
    return [finding.name for finding in report.findings]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_the_jacobian_is_that_of_finite_differences(mode, bias):
    rng = np.random.default_rng(0)
    attn, value = (
        rng.standard_normal((2, 2 + bias, 2 + bias)),
        rng.standard_normal((2, 2 + bias, 2)),
    )
    layer = pa.SoftmaxAttention(attn, value, mode, bias)
    X = rng.standard_normal((3, 3, 2))
    found = np.concatenate([rows for rows, _ in jacobian_blocks(layer, as_batch(X))])
    columns = [("attn", index) for index in np.ndindex(attn.shape) if index[2] < 2]
    columns += [("value", index) for index in np.ndindex(value.shape) if index[1] < 2]
    columns += [("value", (0, 2, c)) for c in range(2)] if bias else []
    assert found.shape == (layer(X).size, len(columns))
    for column, (name, index) in zip(found.T, columns, strict=True):
        sides = []
        for step in (1e-6, -1e-6):
            heads = {"attn": attn.copy(), "value": value.copy()}
            heads[name][index] += step
            sides.append(pa.SoftmaxAttention(**heads, mode=mode, bias=bias)(X).ravel())
        np.testing.assert_allclose(column, (sides[0] - sides[1]) / 2e-6, atol=1e-8)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [False, True])
def test_random_layers_are_identifiable(mode, bias):
    rng = np.random.default_rng(1)
    width = 3 + bias
    attn, value = rng.standard_normal((2, width, width)), rng.standard_normal((2, width, 3))
    layer = pa.SoftmaxAttention(attn, value, mode, bias)
    for report in (
        identifiable_heads(layer),
        identifiable_heads(layer, pa.data.boolean_sequences(100, 3, 3)),
        identifiable_heads(layer, pa.data.random_sequences(100, (1, 5), 3, scale=1.0)),
    ):
        assert report.verdict == "identifiable"
        assert report.findings == ()
        assert report.rank in (None, report.n_parameters)
        assert "are determined by" in str(report)


def test_heads_that_no_input_tells_apart():
    A, B, V = np.eye(2), 2 * np.eye(2), np.ones((2, 1))
    report = identifiable_heads(pa.SoftmaxAttention(np.stack([A, B, A]), np.stack([V, V, 2 * V])))
    assert (report.verdict, names(report)) == ("not_identifiable", ["equal_heads"])
    assert report.findings[0].heads == (0, 2)
    report = identifiable_heads(pa.SoftmaxAttention(np.stack([A, B]), np.stack([V, 0 * V])))
    assert (report.verdict, names(report)) == ("not_identifiable", ["zero_value"])
    assert report.findings[0].heads == (1,)
    # Values that a constant coordinate alone carries are no values.
    shift = pa.SoftmaxAttention(
        np.stack([A, B]), np.array([[[1.0], [0.0]], [[0.0], [1.0]]]), bias=True
    )
    assert names(identifiable_heads(shift)) == ["zero_value"]


def boolean(n_tokens=4, n_dims=3, n_sequences=100):
    return pa.data.boolean_sequences(n_sequences, n_tokens, n_dims)


def changed(place, value):
    X = boolean()
    X[place] = value(X)
    return X


everywhere = np.s_[:, :, 1]
HIDING = {
    "one_token": (boolean(n_tokens=1), "full"),
    "pinned": (changed(everywhere, lambda _: 1.0), "full"),
    "constant_within": (changed(everywhere, lambda X: X[:, :1, 1]), "full"),
    "flat": (changed(everywhere, lambda X: X[:, :, 0] - 2 * X[:, :, 2]), "full"),
    "few_queries": (changed(np.s_[:, -1, 1], lambda X: X[:, -1, 0]), "last"),
    "too_few": (boolean(n_sequences=1, n_tokens=4), "full"),
}


@pytest.mark.parametrize("name", HIDING)
def test_tokens_that_hide_heads(name):
    X, mode = HIDING[name]
    if name == "too_few":
        X = np.random.default_rng(0).standard_normal(X.shape)
    layer = pa.data.random_softmax_layer(3, n_heads=2, mode=mode)
    report = identifiable_heads(layer, X)
    assert report.verdict == "not_identifiable"
    assert name in names(report)
    # The finding agrees with the rank of the Jacobian.
    found = jacobian_rank(layer, as_batch(X))
    assert found.rank is not None
    assert found.rank < report.n_parameters


def test_two_tokens_and_opposite_heads():
    rng = np.random.default_rng(2)
    A, B = rng.standard_normal((2, 3, 3))
    value = rng.standard_normal((2, 3, 3))
    for attn in ((A, -A), (A, 0 * A)):
        layer = pa.SoftmaxAttention(np.stack(attn), value)
        assert names(identifiable_heads(layer, boolean(2))) == ["opposite_heads"]
        assert identifiable_heads(layer, boolean(3)).verdict == "identifiable"
    layer = pa.SoftmaxAttention(np.stack([A, B]), value)
    assert identifiable_heads(layer, boolean(2)).verdict == "identifiable"


def test_boolean_tokens_of_one_coordinate():
    """Two tokens show the sum of V and of tanh(A) V: one head, not two; four tokens show two."""
    one = pa.SoftmaxAttention([[[0.3]]], [[[2.0]]])
    two = pa.SoftmaxAttention([[[0.3]], [[0.7]]], [[[2.0]], [[-0.4]]])
    assert identifiable_heads(one, boolean(2, 1)).verdict == "identifiable"
    report = identifiable_heads(two, boolean(2, 1))
    assert (report.verdict, report.rank, report.n_parameters) == ("not_identifiable", 2, 4)
    assert identifiable_heads(two, boolean(3, 1)).rank == 3
    assert identifiable_heads(two, boolean(4, 1)).verdict == "identifiable"


def test_four_dependent_heads_on_boolean_tokens():
    first, second = np.eye(2)
    attn = [
        np.outer(query, first) for query in (0 * first, first + second, first - second, 2 * first)
    ]
    V = np.random.default_rng(0).standard_normal((2, 2))
    layer = pa.SoftmaxAttention(np.stack(attn), np.stack([V, -2 * V, -V, 3 * V]))
    report = identifiable_heads(layer, boolean(9, 2, 300))
    assert report.verdict == "not_identifiable"
    assert "independent changes of heads [0, 1, 2, 3]" in report.sentence
    real = pa.data.random_sequences(300, 9, 2, scale=1.0)
    assert identifiable_heads(layer, real).verdict == "identifiable"


def test_doubt_is_admitted(monkeypatch):
    layer = pa.data.random_softmax_layer(3, n_heads=2)
    for scale in (1e3, 1e9):
        sharp = pa.SoftmaxAttention(scale * layer.attn, layer.value)
        report = identifiable_heads(sharp, boolean())
        assert report.verdict == "undecided"
        assert "heads [0, 1] are so sharp" in report.sentence
    module = import_module("polyattn.softmax.identifiability.identifiable_heads")
    monkeypatch.setattr(module, "MOST_PARAMETERS", 10)
    report = identifiable_heads(layer, boolean())
    assert report.verdict == "undecided"
    assert "36 parameters are too many" in report.sentence


def test_scales_of_tokens_do_not_matter():
    layer = pa.data.random_softmax_layer(3, n_heads=2)
    tiny = pa.SoftmaxAttention(1e-300 * layer.attn, 1e-150 * layer.value)
    X = 1e150 * boolean()
    assert identifiable_heads(tiny, X).verdict == "identifiable"
    X[:, :, 1] = X[:, :, 0]
    assert names(identifiable_heads(tiny, X)) == ["flat", "few_queries"]


def test_the_budget_ends_the_search(monkeypatch):
    monkeypatch.setattr(visible, "MOST_FLOPS", 1e3)
    monkeypatch.setattr(visible, "BLOCK_NUMBERS", 36)
    layer = pa.data.random_softmax_layer(3, n_heads=2)
    report = identifiable_heads(layer, boolean())
    assert report.verdict == "undecided"
    assert "too many more" in report.sentence
