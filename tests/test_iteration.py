"""The iterative solver, which stops before rounding does: its bound, and which optimum it takes."""

from dataclasses import dataclass

import numpy as np
import pytest

import oracle
import polyattn as pa

KINDS = (
    "gaussian", "mean", "autoregressive", "one-hot", "equal coordinates", "constant", "zero",
    "few distinct",
)  # fmt: skip


def both(X, Y, **options):
    return (pa.fit(X, Y, solver=name, **options) for name in ("iterative", "direct"))


# Both the objective and its minimum are computed in rational numbers, from features written out.


@dataclass(frozen=True)
class Problem:
    """Tokens (N, n, d) of some kind, targets (N, e), weights or None, and a ridge."""

    X: np.ndarray
    Y: np.ndarray
    weights: np.ndarray | None
    ridge: float

    @classmethod
    def random(cls, seed):
        rng = np.random.default_rng(seed)
        d, n = int(rng.integers(1, 6)), int(rng.integers(1, 7))
        p = d * d * (d + 1) // 2
        # Rational numbers are slow: many rows only of few features.
        n_rows = max(1, int(p * 10.0 ** rng.uniform(-1, 2 if d < 4 else 1)))
        X = _tokens(rng, KINDS[seed % len(KINDS)], (n_rows, n, d))
        # Features are of third degree: their condition number is the cube, up to 1e12.
        scales = np.geomspace(1, 10.0 ** -rng.uniform(0, 4), d)
        turn = np.linalg.qr(rng.standard_normal((d, d)))[0] if rng.random() < 0.7 else np.eye(d)
        if seed % len(KINDS) not in (3, 4, 5, 6):
            X = X * scales @ turn
        n_outputs = int(rng.choice([1, 2, 5, 30]))
        features = oracle.plain_design(X)
        Y = features @ rng.standard_normal((p, n_outputs)) / (np.abs(features).max() or 1.0)
        Y += rng.choice([0.0, 1e-6, 1.0]) * rng.standard_normal(Y.shape)
        Y *= 10.0 ** rng.uniform(-3, 3, n_outputs)
        weights = 10.0 ** rng.uniform(-2, 2, n_rows) if rng.random() < 0.3 else None
        ridge = rng.choice([0.0, 1e-8, 1e-4, 1.0], p=[0.5, 0.2, 0.2, 0.1])
        return cls(X, Y, weights, float(ridge * np.sum(features**2) / p))

    def fit(self, solver="iterative"):
        given = {"ridge": self.ridge, "sample_weight": self.weights}
        return pa.fit(self.X, self.Y, solver=solver, **given)

    def excess(self, coef):
        """How far the objective of coefficients is above its minimum, and the minimum."""
        best = oracle.ExactFit.of(list(self.X), self.Y, {}, self.ridge, self.weights)

        def penalised(theta):
            left = best.targets - best.psi * theta
            squares, theta = (np.array(each.tolist()) ** 2 for each in (left, theta))
            return best.weights @ squares.sum(axis=1) + best.sizes @ theta.sum(axis=1) * best.ridge

        least = penalised(best.coef)
        found = penalised(oracle.matrix(oracle.features_of(coef, {})))
        return oracle.nearest(found - least), oracle.nearest(least)


def _tokens(rng, kind, shape):
    X = rng.standard_normal(shape)
    n_rows, n, d = shape
    if kind == "mean":
        X += 2.0
    elif kind == "autoregressive":
        for t in range(1, n):
            X[:, t] = 0.9 * X[:, t - 1] + 0.4 * X[:, t]
    elif kind == "one-hot":
        X = np.eye(d)[rng.integers(0, d, (n_rows, n))]
    elif kind == "few distinct":
        X = X[rng.integers(0, max(1, n_rows // 2), n_rows)]
    elif kind in ("equal coordinates", "constant", "zero"):
        X[..., -1] = {"equal coordinates": X[..., 0], "constant": 1.0, "zero": 0.0}[kind]
    return X


# Of 130 some outputs are met at once, and no Ritz value is known.
@pytest.mark.parametrize(
    ("numbers", "least"),
    [((*range(16), 130), 12), pytest.param(range(300), 250, marks=pytest.mark.slow)],
)
def test_the_stated_excess_is_never_exceeded(numbers, least):
    n_stated = 0
    for number in numbers:
        problem = Problem.random(number)
        found = problem.fit()
        if found.objective_bound is not None:
            n_stated += 1
            excess, minimum = problem.excess(found.coef)
            # Coefficients and figures of a result are rounded once more.
            assert excess <= found.objective_bound + 1e-30 * (excess + minimum), number
    assert n_stated >= least


def test_many_rows_in_single_precision_are_right_and_within_their_bound():
    """Enough of them that passes are made over a copy in float32."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((27_000, 3, 4)) @ rng.standard_normal((4, 4)) + 0.5
    problem = Problem(X, rng.standard_normal((27_000, 2)), None, 3.0)
    found, exact = problem.fit(), problem.fit("direct")
    assert oracle.relative_error(found.coef, exact.coef) < 1e-8
    theta = oracle.features_of(found.coef - exact.coef, {})
    excess = np.sum((oracle.plain_design(X) @ theta) ** 2)
    excess += 3.0 * np.sum(oracle.squared_sizes({}, 4, 4)[:, None] * theta**2)
    assert excess <= found.objective_bound < 1e-12 * 27_000 * exact.risk


def test_the_bound_is_in_the_units_of_the_targets_and_means_something():
    problem = Problem.random(1)
    found = problem.fit()
    excess, least = problem.excess(found.coef)
    assert 0 < found.objective_bound < 1e-12 * (least + np.sum(problem.Y**2))
    larger = pa.fit(problem.X, problem.Y * 2.0**20, solver="iterative")
    assert larger.objective_bound == pytest.approx(found.objective_bound * 2.0**40)
    # Negative control: what is wrong is seen.
    assert problem.excess(found.coef * (1 + 1e-4))[0] > 1e4 * (found.objective_bound + excess)


def test_sizes_of_tokens_along_unknown_directions_do_not_matter():
    rng = np.random.default_rng(0)
    for n_rows, scale, ridge in (
        (2000, 0.01, 0.0), (2000, 0.01, 1e-4), (60, 0.02, 1e-4), (60, 1.0, 1e-12),
    ):  # fmt: skip
        mixing = np.linalg.qr(rng.standard_normal((5, 5)))[0] * np.geomspace(1, scale, 5)
        X, Y = rng.standard_normal((n_rows, 6, 5)) @ mixing.T, rng.standard_normal((n_rows, 2))
        found, exact = both(X, Y, ridge=ridge)
        assert (found.solver, found.outcome.ok) == ("iterative", ridge > 0)
        assert oracle.relative_error(found.predict(X), exact.predict(X)) < 1e-9
        assert oracle.relative_error(found.coef, exact.coef) < 1e-7, (n_rows, scale, ridge)
        assert ridge or 0.1 < found.condition / exact.condition < 10


def test_the_stated_condition_number_is_about_that_of_the_features_and_the_ridge():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2000, 4, 3)) * [1.0, 1.0, 0.1], rng.standard_normal((2000, 1))
    phi = oracle.plain_design(X) / np.sqrt(oracle.squared_sizes({}, 3, 3))
    for ridge in (1.0, 100.0, 1e4):
        true = np.linalg.cond(np.concatenate([phi, np.sqrt(ridge) * np.eye(18)]))
        found = pa.fit(X, Y, ridge=ridge, solver="iterative")
        assert true / 2 < found.condition < 4 * true


def test_correlated_tokens_of_very_different_size_and_a_small_ridge_are_met():
    rng, mixing = np.random.default_rng(0), [[1.0, 1.0, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 1e-3]]
    X, Y = rng.standard_normal((300, 4, 3)) @ mixing, rng.standard_normal((300, 1))
    for ridge in (1e-15, 1e-12):
        found, exact = both(X, Y, ridge=ridge)
        assert found.outcome.ok
        assert oracle.relative_error(found.coef, exact.coef) < 1e-9


def test_features_too_different_for_the_smallest_norm_are_met_all_the_same():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((9, 4, 3)), rng.standard_normal((9, 2))
    assert pa.fit(X * [1.0, 1.0, 1e-5], Y, solver="iterative").risk < 1e-18
    # Others depend on each other, too: no iteration is enough, and another solver is.
    X, Y = rng.standard_normal((60, 4, 3)) * [1.0, 1.0, 1e-5], rng.standard_normal((60, 1))
    X[..., 1] = X[..., 0]
    found, exact = both(X, Y)
    assert found.risk == pytest.approx(exact.risk, rel=1e-9)


@pytest.mark.parametrize("difference", [1e-7, 1e-10])
@pytest.mark.parametrize("ridge", [1e-1, 1e-4, 1e-8])
def test_differences_that_squares_do_not_show_are_seen(difference, ridge):
    """Nearly equal sequences: with a ridge, what they differ in decides on the coefficients."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((1, 4, 3)), 32, axis=0)
    X, Y = X + difference * rng.standard_normal(X.shape), rng.standard_normal((32, 1))
    found, exact = both(X, Y, ridge=ridge * float(np.linalg.norm(X, axis=(1, 2)).max() ** 6))
    assert oracle.relative_error(found.coef, exact.coef) < 1e-4


def test_directions_that_drown_in_rounding_cost_nothing():
    """Tokens of rank three in float32: products of what they lack have 1e-14 of the size."""
    rng = np.random.default_rng(1)
    X = (rng.standard_normal((34, 7, 3)) @ rng.standard_normal((3, 4))).astype(np.float32)
    Y = pa.data.random_layer(4, 2, 2, "causal", 0)(X)
    assert pa.fit(X, Y, "causal", solver="iterative").risk < 1e-20 * np.mean(Y**2)
