"""Kernels of rows, and sums, near the limits of float64: right to rounding, or said to be not.

That all ways find the optimum of any form, weights and units is a law of test_fit.
"""

import numpy as np
import pytest

import oracle
import polyattn as pa
from oracle import EPS


@pytest.mark.parametrize("bits", [6, 10, 14])
def test_a_kernel_is_refined_to_kappa_eps(bits):
    """Two sequences almost the same: the kernel alone would leave an error of kappa^2 eps."""
    rng = np.random.default_rng(bits)
    X, Y = rng.integers(-3, 4, (4, 3, 2)) * 2.0**bits, rng.integers(-9, 10, (4, 1)).astype(float)
    X[1] = X[0] + rng.integers(1, 4, size=(3, 2))
    phi = oracle.plain_design(X)
    condition = np.linalg.cond(phi / np.linalg.norm(phi, axis=0))
    assert 2**bits < condition < 2 ** (bits + 9)
    found, rounding = pa.fit(X, Y, solver="dual"), 10 * EPS * condition
    assert found.condition < 10 * condition
    assert oracle.relative_error(found.predict(X), Y) < rounding
    wanted = oracle.numbers(oracle.ExactFit.of(list(X), Y, {}).coef)
    assert oracle.relative_error(oracle.features_of(found.coef, {}), wanted) < 6 * rounding
    assert found.risk < rounding**2 * float(np.mean(Y**2))


@pytest.mark.parametrize("power", [6, 5, 3])
@pytest.mark.parametrize("size", [1e-3, 1e-8])
def test_few_rows_beside_a_constant_of_another_size(size, power):
    """Features from 1 down to 1e-24: outputs are the minimiser's, and rounding is told of."""
    rng = np.random.default_rng(3)
    X, Y, ridge = size * rng.standard_normal((12, 3, 2)), rng.standard_normal((12, 1)), size**power
    exact = oracle.ExactFit.of(list(X), Y, {"bias": True}, ridge)
    for solver in ("auto", "dual", "direct", "primal"):
        found = pa.fit(X, Y, bias=True, ridge=ridge, solver=solver)
        np.testing.assert_allclose(found.predict(X), oracle.numbers(exact.predicted), atol=1e-9)
        assert found.risk == pytest.approx(oracle.nearest(exact.risk), rel=1e-9, abs=1e-18)
        assert found.outcome.ok == (found.condition < 1e13)


def test_a_small_ridge_that_steadies_moments_is_added():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((200, 4, 2)), rng.standard_normal((200, 1))
    X[..., 1] = X[..., 0] + 0.02 * X[..., 1]
    ridge = 3e-13 * float(np.sum(oracle.plain_design(X) ** 2))
    found = pa.fit(statistics=pa.Moments(2, 1).update(X, Y), ridge=ridge)
    expected, without = (pa.fit(X, Y, ridge=each, solver="direct") for each in (ridge, 0.0))
    assert oracle.relative_error(found.coef, expected.coef) < 1e-2
    assert np.linalg.norm(expected.coef) < 0.9 * np.linalg.norm(without.coef)


def kernel_of(X, Z):
    """<T(X), T(Z)> = (query . query') ||X Z^T||^2, the inner product behind ||T||."""
    grams = np.einsum("xta,zsa->xzts", X, Z)
    return np.sum(grams**2, axis=(2, 3)) * (X[:, -1] @ Z[:, -1].T)


def by_kernel(X, Y, fresh, ridge=0.0):
    """Outputs on fresh sequences of the minimiser of least norm."""
    kernel = kernel_of(X, X) + ridge * np.eye(len(X))
    return kernel_of(fresh, X) @ np.linalg.lstsq(kernel, Y, rcond=1e-11)[0]


@pytest.mark.parametrize("apart", [0.0, 1e-6, 1e-8])
def test_a_singular_kernel_finds_the_mean_or_says_what_it_hides(apart):
    """Repeated sequences of unlike targets, with features too many to hold (p = 864,000)."""
    rng = np.random.default_rng(0)
    X, Y = np.repeat(rng.standard_normal((20, 3, 120)), 2, axis=0), rng.standard_normal((40, 2))
    X += apart * rng.standard_normal(X.shape)
    found = pa.fit(X, Y, solver="dual")
    outputs = found.predict(X)
    assert found.risk == pytest.approx(np.mean(np.sum((outputs - Y) ** 2, axis=1)), rel=1e-6)
    if apart == 0.0:
        wanted = np.repeat((Y[::2] + Y[1::2]) / 2, 2, axis=0)
        assert oracle.relative_error(outputs, wanted) < 1e-9
        assert (found.rank, found.outcome.name) == (20, "minimum_norm")
    else:
        # All rows could be met.
        excess = found.risk / np.mean(np.sum(Y**2, axis=1))
        assert excess < 1e-6 or not found.outcome.ok


@pytest.mark.parametrize("penalty", [0.0, 1e-3])
@pytest.mark.parametrize(("n_rows", "n_dims"), [(60, 20), (513, 11)])
def test_kernels_of_few_rows_and_of_more_than_a_block(n_rows, n_dims, penalty):
    """Around a mean, some of them zero or repeated; there are 4200 features, or 726."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((n_rows, 3, n_dims)) + 1.0, rng.standard_normal((n_rows, 2))
    fresh = rng.standard_normal((9, 3, n_dims)) + 1.0
    X[:3], X[10:12], Y[10:12] = 0.0, X[12:14], Y[12:14]
    ridge = penalty * float(np.trace(kernel_of(X, X)))
    wanted = by_kernel(X, Y, fresh, ridge)
    for solver in ("iterative", "dual"):
        found = pa.fit(X, Y, solver=solver, ridge=ridge)
        assert oracle.relative_error(found.predict(fresh), wanted) < 1e-7
        assert np.all(found.predict(X)[:3] == 0.0)
