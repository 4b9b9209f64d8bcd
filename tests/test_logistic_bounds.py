"""Log-loss: bounds that are proved, and the derivatives behind them."""

import numpy as np
import pytest

import polyattn as pa
from logistic_tasks import design, objective, task, theta_of
from polyattn.form.form import Form
from polyattn.reference import logistic
from polyattn.solve import curvature_model, newton
from polyattn.solve import logistic as solve_logistic
from polyattn.solve.feature_passes import FeaturePasses
from polyattn.solve.log_loss import LogLoss, probabilities
from polyattn.stats.rows import Rows


def problem(n_classes, ridge, seed=0):
    X, labels = task(200, 5, 3, n_classes, seed)
    passes = FeaturePasses(Rows.build(X, None, Form()))
    loss = LogLoss(labels, np.ones(len(labels)), n_classes)
    gram = passes.weighted_gram(loss.weights)
    space = curvature_model.search_space(passes, loss.weights, gram, 2 * ridge)
    inverse = space.inverse(space.penalised(loss.first_curvature * space.gram, 2 * ridge))
    return passes, loss, space, newton.minimise(passes, loss, ridge, inverse, space)


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_bounds_hold_near_and_far(n_classes, ridge):
    passes, loss, space, best = problem(n_classes, ridge)
    steps = newton._Newton(passes, loss, ridge, np.zeros_like, space)
    rng = np.random.default_rng(0)
    proved = 0
    for size in 10.0 ** np.arange(-8, 1):
        move = size * rng.standard_normal(best.theta.shape) * np.linalg.norm(best.theta)
        move -= move.mean(axis=1, keepdims=True) if n_classes > 2 else 0.0
        there = steps.at(best.theta + move)
        gap = there.objective - best.objective
        bound = solve_logistic.decrement_bound(passes, there, ridge, space)
        assert bound >= gap - 1e-12 * best.objective
        if np.isfinite(bound):
            proved += 1
            # A bound that says nothing would hold as well.
            assert bound <= 60 * gap + 1e-12 * best.objective
        if ridge > 0:
            assert np.sum(there.gradient**2) / (4 * ridge) >= gap - 1e-12 * best.objective
    assert 2 <= proved < 9


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_bound_of_a_fit_that_was_cut_short_is_true(monkeypatch, steps):
    X, labels = task(400, 5, 3, 3)
    best = objective(pa.fit(X, labels, ridge=0.1, loss="logistic"), design(X), labels)
    monkeypatch.setattr(newton, "MAX_STEPS", steps)
    result = pa.fit(X, labels, ridge=0.1, loss="logistic")
    gap = objective(result, design(X), labels) - best
    assert 0 < gap <= result.objective_bound
    assert result.outcome.name == "not_converged"
    assert not result.outcome.ok
    assert f"{result.objective_bound:.1e}" in result.outcome.sentence


def test_rounding_of_the_gradient_is_bounded():
    passes, loss, _, found = problem(2, 0.1)
    phi = design(task(200, 5, 3, 2)[0]).astype(np.longdouble)
    theta = found.theta.astype(np.longdouble)
    signs = np.where(loss.codes == 1, 1.0, -1.0)
    wrong = 1 / (1 + np.exp(signs * (phi @ theta)[:, 0]))
    exact = -(phi.T @ (signs * wrong))[:, None] + 0.2 * theta
    error = float(np.linalg.norm(exact - found.gradient))
    assert (
        0
        < error
        <= solve_logistic.gradient_rounding(passes, found, 0.1, np.ones(passes.n_features))
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_third_derivatives_are_bounded_by_second(n_classes):
    rng = np.random.default_rng(2)
    codes = rng.integers(0, n_classes, 500)
    loss = LogLoss(codes, np.ones(500), n_classes)
    outputs, move = 3 * rng.standard_normal((2, loss.n_outputs, 500))
    h = 1e-5

    def second(t):
        return np.sum(move * loss.at(outputs + t * move).curved(move), axis=0)

    third = (second(h) - second(-h)) / (2 * h)
    size = loss.third_derivative_factor * np.linalg.norm(move, axis=0)
    assert np.all(np.abs(third) <= size * second(0.0) + 1e-8)
    least = loss.at(outputs).least_curvature
    centred = move - (move.mean(axis=0) if n_classes > 2 else 0.0)
    assert np.all(second(0.0) >= least * np.sum(centred**2, axis=0) * (1 - 1e-12))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_derivatives_are_those_of_the_loss(n_classes):
    rng = np.random.default_rng(3)
    codes, weights = rng.integers(0, n_classes, 50), rng.random(50)
    loss = LogLoss(codes, weights, n_classes)
    outputs, move = rng.standard_normal((2, loss.n_outputs, 50))
    h = 1e-6
    ahead, behind = loss.at(outputs + h * move), loss.at(outputs - h * move)
    point = loss.at(outputs)
    slope = (ahead.value - behind.value) / (2 * h)
    assert slope == pytest.approx(np.sum(point.slopes * move), rel=1e-7)
    curved = (ahead.slopes - behind.slopes) / (2 * h)
    np.testing.assert_allclose(point.curved(move), curved, atol=1e-8)
    np.testing.assert_allclose(point.curved(move[:, 20:30], 20), curved[:, 20:30], atol=1e-8)
    expected = [
        -np.log(logistic.chances(row)[code]) for row, code in zip(outputs.T, codes, strict=True)
    ]
    np.testing.assert_allclose(point.losses, expected, atol=1e-13)


def test_large_outputs_neither_overflow_nor_lose_digits():
    outputs = np.array([[800.0, -800.0, 0.0], [-800.0, 40.0, 0.0], [0.0, 0.0, 0.0]])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        point = LogLoss(np.array([0, 1, 2]), np.ones(3), 3).at(outputs)
        pair = LogLoss(np.array([1, 1, 0]), np.ones(3), 2).at(np.array([[800.0, -800.0, 40.0]]))
        chances = probabilities(np.array([[800.0], [-800.0]]))
    assert point.losses[1] == pytest.approx(np.exp(-40.0), rel=1e-12)
    assert np.sum(point.slopes[:, 1]) == pytest.approx(0.0, abs=1e-30)
    np.testing.assert_allclose(pair.losses, [0.0, 800.0, 40.0], atol=1e-15)
    np.testing.assert_allclose(chances, [[0.0, 1.0], [1.0, 0.0]], atol=1e-300)


def test_classes_do_not_drift_together_beside_a_ridge():
    """Softmax does not see it, but the penalty does: the bound would be false."""
    rng = np.random.default_rng(73)
    X, labels = np.round(rng.standard_normal((60, 2, 3))), rng.integers(0, 4, 60)
    weights = 10.0 ** rng.uniform(-6, 6, 60)
    form = Form(skip=True, intercept=True)
    result = pa.fit(X, labels, form=form, ridge=1.0, sample_weight=weights, loss="logistic")
    theta = theta_of(result)
    assert np.abs(theta.sum(axis=1)).max() <= 1e-13 * np.abs(theta).max()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("apart", [1e-4, 1e-7, 1e-9])
def test_nearly_equal_coordinates_are_not_taken_for_equal(apart, n_classes):
    """Their differences are lost in second moments, and lower the loss all the same."""
    rng = np.random.default_rng(1)
    X, labels = rng.standard_normal((100, 4, 2)), rng.integers(0, n_classes, 100)
    X[..., 1] = X[..., 0] * (1 + apart * rng.standard_normal((100, 4)))
    result = pa.fit(X, labels, loss="logistic")
    scaled = design(X) / np.linalg.norm(design(X), axis=0)
    left, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
    basis = 10 * left[:, sizes > 1e-14]
    best = logistic.minimiser(basis, labels, np.ones(100), 1e-9)
    gap = result.risk * 100 - logistic.objective(best, basis, labels, np.ones(100), 1e-9)
    assert gap <= 1e-2
    assert result.objective_bound is None or gap <= result.objective_bound + 1e-12


def test_a_large_sequence_does_not_hide_the_others():
    X, labels = task(80, 4, 3, 2)
    X[0] *= 1e3
    result = pa.fit(X, labels, loss="logistic")
    assert result.rank == 18
    small = pa.fit(X, labels, loss="logistic", ridge=1e-9)
    assert result.risk <= small.risk * (1 + 1e-9)
