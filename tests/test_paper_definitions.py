"""Definitions and constructions of the first paper, transcribed as printed, beside the library.

Here Z has tokens as columns, V_h and Q_h stand on the left, and indices are those of the paper;
docs/derivations/definitions.md says what is corrected.
"""

from itertools import combinations
from math import comb

import numpy as np
import pytest

import polyattn as pa
from polyattn.reference import features

SHAPES = [(1, 1, 1), (2, 3, 2), (3, 1, 2), (3, 4, 1), (4, 2, 3)]  # d, n, H


def parameters(d, n_heads, seed=0):
    """Theta = {(V_h, Q_h)}, two arrays (H, d, d)."""
    return np.random.default_rng(seed).standard_normal((2, n_heads, d, d))


def as_layer(V, Q, mode="last"):
    """The paper's heads as ours: tokens are rows, so matrices are transposed."""
    return pa.LinearAttention(Q.transpose(0, 2, 1), V.transpose(0, 2, 1), mode=mode)


def equation_4(V, Q, Z):
    return sum(v @ Z @ (Z.T @ q @ Z) for v, q in zip(V, Q, strict=True))


def algorithm_8(Z):
    """The features X of the regression, d x d^2 (the page prints d x d); k d + l counts from 0."""
    d = len(Z)
    found = np.zeros((d, d * d))
    for j in range(d):
        for k in range(d):
            for col in range(d):
                found[j, k * d + col] = (Z[j] @ Z[k]) * Z[col, -1]
    return found


def algorithm_2(Z):
    """H(Z): distinct pairs first, then squares, each with every coordinate of the last token."""
    d, found = len(Z), []
    for j, k in combinations(range(d), 2):
        found += [(Z[j] @ Z[k]) * Z[col, -1] for col in range(d)]
    for j in range(d):
        found += [(Z[j] @ Z[j]) * Z[col, -1] for col in range(d)]
    return np.array(found)


def algorithm_1(sequences, targets):
    """V_h and Q_h: regression on all d^2 x d^2 numbers of W, then an SVD of W."""
    d = len(sequences[0])
    rows = np.zeros((len(sequences), d, d * d, d * d))
    for i, Z in enumerate(sequences):
        for a in range(d):
            rows[i, a, a * d : (a + 1) * d] = algorithm_8(Z)
    W = np.linalg.lstsq(rows.reshape(-1, d**4), targets.ravel(), rcond=None)[0]
    A, sizes, B = np.linalg.svd(W.reshape(d * d, d * d))
    kept = sizes > 1e-12 * sizes[0]
    return (A[:, kept] * sizes[kept]).T.reshape(-1, d, d), B[kept].reshape(-1, d, d)


def equations_41_42(V, Q, squares=1):
    """p(Theta), (d, psi) in the order of ``algorithm_2``; ``squares``: how often {j, j} counts."""
    d, rows = V.shape[1], []
    for a in range(d):
        row = []
        for j, k in combinations(range(d), 2):
            row += [np.sum(V[:, a, j] * Q[:, k, c] + V[:, a, k] * Q[:, j, c]) for c in range(d)]
        for j in range(d):
            row += [squares * np.sum(V[:, a, j] * Q[:, j, c]) for c in range(d)]
        rows.append(row)
    return np.array(rows)


def reordered(P):
    """Our folded coefficients (e, q, d) in the order of ``algorithm_2``."""
    d = P.shape[2]
    places = {pair: number for number, pair in enumerate(features.pairs(d))}
    order = [*combinations(range(d), 2), *((j, j) for j in range(d))]
    return P[:, [places[pair] for pair in order]].reshape(len(P), -1)


@pytest.mark.parametrize(("d", "n", "n_heads"), SHAPES)
def test_definition_2_1_is_the_layer(d, n, n_heads):
    V, Q = parameters(d, n_heads)
    Z = np.random.default_rng(n).standard_normal((d, n))
    Y = equation_4(V, Q, Z)
    np.testing.assert_allclose(as_layer(V, Q, "full")(Z.T), Y.T, atol=1e-11)
    # Equation 5 is its last column.
    np.testing.assert_allclose(as_layer(V, Q)(Z.T), Y[:, -1], atol=1e-11)


@pytest.mark.parametrize(("d", "n", "n_heads"), SHAPES)
def test_algorithm_8_makes_the_layer_linear(d, n, n_heads):
    """Equation 8: <T, X_a> = y_a with T the sum of flatten(V) flatten(Q)^T, d^2 x d^2."""
    V, Q = parameters(d, n_heads)
    Z = np.random.default_rng(n).standard_normal((d, n))
    T = sum(np.outer(v, q) for v, q in zip(V, Q, strict=True))
    for a in range(d):
        X_a = np.zeros((d * d, d * d))
        X_a[a * d : (a + 1) * d] = algorithm_8(Z)
        assert np.sum(T * X_a) == pytest.approx(equation_4(V, Q, Z)[a, -1], abs=1e-11)
    ours = features.tensor(Q.transpose(0, 2, 1), V.transpose(0, 2, 1))
    np.testing.assert_allclose(ours.reshape(d * d, d * d), T, atol=1e-12)


@pytest.mark.parametrize(("d", "n_sequences"), [(1, 3), (2, 30), (3, 60), (2, 4)])
def test_algorithm_1_as_printed_is_our_fit(d, n_sequences):
    """On targets of no layer; four sequences are fewer equations than unknowns."""
    rng = np.random.default_rng(d)
    sequences = rng.standard_normal((n_sequences, d, 4))
    targets = rng.standard_normal((n_sequences, d))
    V, Q = algorithm_1(sequences, targets)
    assert len(V) <= d * d
    fitted = pa.fit(sequences.transpose(0, 2, 1), targets, mode="last")
    found = as_layer(V, Q)
    away = found(sequences.transpose(0, 2, 1)) - targets
    assert fitted.risk == pytest.approx(np.mean(np.sum(away**2, axis=1)), abs=1e-13)
    np.testing.assert_allclose(fitted.coef, found.coef, atol=1e-11)


@pytest.mark.parametrize(("d", "n"), [shape[:2] for shape in SHAPES])
def test_algorithm_2_is_the_features_of_certificates(d, n):
    Z = np.random.default_rng(n).standard_normal((d, n))
    H = algorithm_2(Z)
    assert len(H) == d * comb(d, 2) + d**2
    ours = features.cubic_features(*features.summaries(Z.T, "last")[0])
    np.testing.assert_allclose(reordered(ours.reshape(1, -1, d))[0], H, atol=1e-13)
    # And those that certify counts: psi of them, all seen in enough data.
    X = np.random.default_rng(0).standard_normal((2 * len(H) + 2, 3, d))
    certificate = pa.certify(X)
    assert certificate.verdict == "identifiable"
    assert certificate.dimension == len(H)


@pytest.mark.parametrize(("d", "n", "n_heads"), SHAPES)
def test_equations_41_and_42_are_the_folded_coefficients(d, n, n_heads):
    """Equation 19 is for distinct pairs: read for {j, j} it would count squares twice."""
    V, Q = parameters(d, n_heads)
    Z = np.random.default_rng(n).standard_normal((d, n))
    y, H = equation_4(V, Q, Z)[:, -1], algorithm_2(Z)
    p = equations_41_42(V, Q)
    np.testing.assert_allclose(p @ H, y, atol=1e-11)
    np.testing.assert_allclose(reordered(as_layer(V, Q).coef), p, atol=1e-13)
    twice = equations_41_42(V, Q, squares=2)
    assert np.abs(twice @ H - y).max() > 1e-2 * np.abs(y).max()


def test_corollary_2_4_other_heads_with_the_same_p_are_the_same_function():
    V, Q = parameters(3, 2)
    rng = np.random.default_rng(1)
    mixing = rng.standard_normal((2, 2))
    mixed_V = np.einsum("gh,hij->gij", mixing, V)
    mixed_Q = np.einsum("gh,hij->gij", np.linalg.inv(mixing).T, Q)
    assert np.abs(mixed_V - V).max() > 0.1
    np.testing.assert_allclose(equations_41_42(mixed_V, mixed_Q), equations_41_42(V, Q), atol=1e-12)
    one, other = as_layer(V, Q), as_layer(mixed_V, mixed_Q)
    assert pa.same_function(one, other)
    X = rng.standard_normal((20, 4, 3))
    np.testing.assert_allclose(one(X), other(X), atol=1e-10)


def test_corollary_2_4_another_p_is_another_function_unless_all_sequences_have_one_token():
    """<z_1, z_2> z_1n and <z_1, z_1> z_2n are two features, and one monomial if n = 1."""
    one, other = np.zeros((2, 2, 1, 2, 2))
    one[0, 0, 0, 0] = other[0, 0, 0, 0] = 1.0
    one[1, 0, 1, 0] = other[1, 0, 0, 1] = 1.0
    assert np.abs(equations_41_42(*one) - equations_41_42(*other)).max() == 1.0
    first, second = as_layer(*one), as_layer(*other)
    rng = np.random.default_rng(0)
    alone, pairs = rng.standard_normal((50, 1, 2)), rng.standard_normal((50, 2, 2))
    np.testing.assert_allclose(first(alone), second(alone), atol=1e-12)
    assert np.abs(first(pairs) - second(pairs)).max() > 0.1
    assert not pa.same_function(first, second)
    assert pa.coefficient_distance(first, second) == pytest.approx(np.sqrt(2))


def test_definition_a_2_realisable_data_have_no_risk_and_others_have():
    V, Q = parameters(2, 2)
    rng = np.random.default_rng(2)
    X = rng.standard_normal((40, 3, 2))
    Y = as_layer(V, Q)(X)
    fitted = pa.fit(X, Y)
    assert fitted.risk <= 1e-24 * np.mean(Y**2)
    assert pa.same_function(fitted.layer, as_layer(V, Q), 1e-9)
    assert pa.fit(X, Y + rng.standard_normal(Y.shape)).risk > 0.1


@pytest.mark.parametrize("n_sequences", [5, 40])
def test_definition_a_1_identifiable_data_have_one_minimiser_and_others_two(n_sequences):
    V, Q = parameters(2, 2)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n_sequences, 3, 2))
    Y, certificate = as_layer(V, Q)(X), pa.certify(X)
    if n_sequences == 40:
        assert certificate.verdict == "identifiable"
        # Minimisers by other means: the dual solver, and the planted heads themselves.
        minimisers = [pa.fit(X, Y, solver=each).layer for each in ("primal", "dual")]
        for layer in minimisers:
            assert pa.same_function(layer, as_layer(V, Q), 1e-9)
        return
    assert certificate.verdict == "not_identifiable"
    pair = certificate.witness(as_layer(V, Q))
    losses = [np.mean((layer(X) - Y) ** 2) for layer in (pair.layer_a, pair.layer_b)]
    np.testing.assert_allclose(losses, 0.0, atol=1e-20)
    assert pair.difference > 1e-3


def test_lemma_a_6_all_minimisers_agree_on_data_of_no_layer():
    """The gradient vanishes at the fit, and the risk is curved in every direction."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 4, 2)), rng.standard_normal((60, 2))
    certificate, fitted = pa.certify(X), pa.fit(X, Y, mode="last")
    assert certificate.verdict == "identifiable"
    assert fitted.risk > 0.1
    rows = np.array([algorithm_2(x.T) for x in X])
    away = rows @ reordered(fitted.coef).T - Y
    np.testing.assert_allclose(rows.T @ away, 0.0, atol=1e-10)
    smallest = np.linalg.eigvalsh(rows.T @ rows / len(rows))[0]
    assert certificate.lambda_min == pytest.approx(smallest)
    assert smallest > 0.01
