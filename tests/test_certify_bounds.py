"""Bounds: never exceeded by any pair of layers with small enough risk, and nearly attained."""

from itertools import product

import numpy as np
import pytest
from scipy.linalg import solve_triangular

import polyattn as pa
from polyattn.certify.bounds import _solved
from polyattn.certify.verified.gram import Definite
from polyattn.certify.witness import layer_of_coef
from polyattn.form.layout import Layout

MODES = ("last", "causal", "full")


def features(X, mode, bias):
    """psi (rows, p) by unit layers: column i is the output of the i-th unit coefficient."""
    width = np.shape(X)[-1] + bias
    p = width * width * (width + 1) // 2
    layout = Layout.plain(width - bias, mode, bias)
    columns = [
        np.reshape(layer_of_coef(unit.reshape(-1, width), layout)(X), -1) for unit in np.eye(p)
    ]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [False, True])
def test_no_pair_of_near_minimisers_exceeds_the_bound(mode, bias):
    """Random pairs, and for every new input the pair that is worst there: 240 per case."""
    rng = np.random.default_rng(0)
    X, fresh = rng.standard_normal((80, 3, 2)), 2.0 * rng.standard_normal((20, 4, 2))
    certificate = pa.certify(X, mode, bias=bias)
    psi, new = features(X, mode, bias), features(fresh, mode, bias)
    root = np.linalg.cholesky(psi.T @ psi / len(psi))
    risk, optimal = 0.75, 0.5
    bound = np.reshape(certificate.bound(fresh, risk, optimal), -1)
    worst = np.reshape(certificate.bound(fresh, risk, optimal, kind="worst_case"), -1)
    assert np.all(bound <= worst * (1 + 1e-9))
    excess = np.sqrt(risk - optimal)

    def difference(direction):
        """Coefficients P - P* of risk exactly ``risk``."""
        return solve_triangular(root.T, excess * direction / np.linalg.norm(direction))

    for _ in range(200):
        first, second = (difference(rng.standard_normal(len(root))) for _ in range(2))
        assert np.all(np.abs(new @ (first - second)) <= bound)
    for row, limit in zip(new, bound, strict=True):
        steepest = difference(solve_triangular(root, row, lower=True))
        apart = row @ (2 * steepest)
        assert apart <= limit * (1 + 1e-12)
        assert apart >= limit * (1 - 1e-6)  # attained: the bound cannot be improved


def test_the_worst_case_is_that_of_the_smallest_eigenvalue():
    rng = np.random.default_rng(0)
    X, fresh = (rng.standard_normal((n, 3, 2)) * [1.0, 10.0] for n in (80, 9))
    certificate = pa.certify(X)
    sizes = np.linalg.norm(features(fresh, "last", False), axis=1)
    expected = 2.0 * np.sqrt(0.25 / certificate.lambda_min) * sizes
    worst = certificate.bound(fresh, 0.25, kind="worst_case")
    assert np.all(expected * (1 - 1e-9) <= worst)
    assert np.all(worst <= 1.01 * expected)


def test_doubt_about_a_feature_counts_by_the_margin():
    """z^T M^-1 z for every z within the doubt, M = R^T R + margin I, R nearly singular."""
    rng = np.random.default_rng(0)
    factor = np.triu(rng.standard_normal((3, 3))) * 1e-3
    proof = Definite(np.ones(3), factor, margin=1e-2, rounding=0.0)
    inverse = np.linalg.inv(factor.T @ factor + 1e-2 * np.eye(3))
    scaled, doubt = 1e-6 * rng.standard_normal((3, 50)), np.full((3, 50), 0.5)
    bound = _solved(proof, scaled, doubt)
    for signs in np.array(list(product((-1, 1), repeat=3))):
        z = scaled + doubt * signs[:, None]
        assert np.all(np.einsum("ir,ij,jr->r", z, inverse, z) <= bound**2)
    assert np.all(bound**2 <= 3 * 0.25 / 1e-2 * 1.1)


@pytest.mark.parametrize("seed", range(6))
def test_layers_fitted_to_noisy_data_obey_the_bound(seed):
    """Several outputs and true risks: ridge fits of different strength are near-minimisers."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 4, 3))
    Y = _layer(seed)(X) + rng.standard_normal((200, 2))
    fresh = 3 * rng.standard_normal((40, 5, 3))
    best = pa.fit(X, Y)
    certificate = pa.certify(X)
    fits = [pa.fit(X, Y, ridge=ridge) for ridge in (0.0, 10.0, 100.0, 1000.0)]
    risks = [float(np.mean(np.sum((fit.predict(X) - Y) ** 2, axis=1))) for fit in fits]
    for a, risk_a in zip(fits, risks, strict=True):
        for b, risk_b in zip(fits, risks, strict=True):
            risk = max(risk_a, risk_b, best.risk)
            bound = certificate.bound(fresh, risk, min(best.risk, risk))
            apart = np.linalg.norm(a.predict(fresh) - b.predict(fresh), axis=1)
            assert np.all(apart <= bound * (1 + 1e-9) + 1e-12)


def _layer(seed):
    return pa.data.random_layer(3, n_outputs=2, mode="last", random_state=seed)


def test_forms_of_the_answer_follow_the_input():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 3, 2))
    last, causal = pa.certify(X), pa.certify(X, "causal")
    assert last.bound(X[:5], 1.0).shape == (5,)
    assert causal.bound(X[:5], 1.0).shape == (5, 3)
    assert causal.bound(X[0], 1.0).shape == (3,)
    assert isinstance(last.bound(X[0], 1.0), float)
    ragged = causal.bound([X[0], X[1, :2]], 1.0)
    assert [len(rows) for rows in ragged] == [3, 2]
    np.testing.assert_allclose(ragged[0], causal.bound(X[0], 1.0), rtol=1e-12)
    np.testing.assert_allclose(4 * last.bound(X, 0.25), 2 * last.bound(X, 1.0), rtol=1e-12)
    assert np.all(last.bound(X, 0.5, 0.5) == 0)


def test_the_bound_on_a_domain():
    rng = np.random.default_rng(0)
    X = rng.choice([-1, 1], size=(300, 3, 3))
    certificate = pa.certify(X, domain="boolean")
    bound, worst = certificate.bound(X[:9], 0.1), certificate.bound(X[:9], 0.1, kind="worst_case")
    assert np.all(np.isfinite(bound))
    assert np.all(bound <= worst)
    with pytest.raises(ValueError, match="does not belong"):
        certificate.bound(0.5 * X[:9], 0.1)
    assert np.all(np.isinf(pa.certify(X).bound(X[:9], 0.1)))


def test_ill_conditioned_data_never_get_a_bound_below_the_truth():
    """Full rank is proved by the triangular factor, but no float64 inverse is: infinity."""
    X = np.random.default_rng(0).standard_normal((90, 4, 3))
    X[..., 2] = X[..., 1] + 1e-3 * X[..., 2]
    certificate = pa.certify(X)
    assert certificate.verdict == "identifiable"
    assert np.all(np.isinf(certificate.bound(X[:3], 0.1)))


@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_scales(scale):
    X = np.random.default_rng(0).standard_normal((90, 4, 3))
    expected = pa.certify(X).bound(X[:5], 1.0)
    np.testing.assert_allclose(pa.certify(scale * X).bound(scale * X[:5], 1.0), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"risk": -1.0}, "risk must be"),
        ({"risk": np.nan}, "risk must be"),
        ({"risk": "small"}, "risk must be"),
        ({"risk": 1.0, "optimal_risk": 2.0}, "at least optimal_risk"),
        ({"risk": 1.0, "kind": "best"}, "kind must be"),
    ],
)
def test_misuse_is_refused(arguments, words):
    X = np.random.default_rng(0).standard_normal((90, 4, 3))
    with pytest.raises(ValueError, match=words):
        pa.certify(X).bound(X, **arguments)


def test_inputs_of_the_wrong_width_are_refused():
    X = np.random.default_rng(0).standard_normal((90, 4, 3))
    with pytest.raises(ValueError, match="3 coordinates"):
        pa.certify(X).bound(X[..., :2], 1.0)
