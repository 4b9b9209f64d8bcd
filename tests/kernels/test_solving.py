"""Inner parts of the solution that no public call reaches closely enough; they die with them."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import oracle
import polyattn as pa
from oracle import EPS
from polyattn.numerics import blas
from polyattn.numerics.parallel import map_pieces, n_workers
from polyattn.solve import curvature_model, newton, normal_equations, planning, solving
from polyattn.solve import logistic as solve_logistic
from polyattn.solve.conjugate_gradients import descend
from polyattn.solve.excess import FAILURE, least_eigenvalue
from polyattn.solve.feature_passes import FeaturePasses
from polyattn.solve.log_loss import LogLoss
from polyattn.solve.pivoted_rows import PivotedRows
from polyattn.solve.row_kernel import RowKernel
from polyattn.solve.second_moments import second_moments
from polyattn.stats.rows import Rows

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("size", [1, blas.PANEL, blas.PANEL + blas.TILE + 1, 3 * blas.PANEL + 5])
def test_cholesky_by_tiles(size):
    """The factor is LAPACK's up to rounding, and the other triangle stays as it was."""
    root = np.random.default_rng(size).standard_normal((size, size + 20))
    whole = np.asfortranarray(root @ root.T)
    whole[np.triu_indices(size, 1)] = np.nan
    assert blas.factor_lower(whole)
    assert np.all(np.isnan(whole[np.triu_indices(size, 1)]))
    lower = np.tril(whole)
    residual = np.linalg.norm(lower @ lower.T - root @ root.T)
    assert residual <= size * EPS * np.linalg.norm(root) ** 2
    indefinite = np.eye(size, order="F")
    indefinite[size // 2, size // 2] = -1.0
    assert not blas.factor_lower(indefinite)


def test_pieces_wait_for_nobody_and_none_runs_on_after_an_error():
    other, running = threading.Event(), []

    def work(i):
        if i == 0:
            other.wait(60)
            raise ValueError("first")
        running.append(i)
        other.set()
        for _ in range(20):
            np.ones((100, 100)) @ np.ones((100, 100))
        running.remove(i)

    with threadpool_limits(2, user_api="blas"):
        assert map_pieces(lambda _: n_workers(), range(4)) == [1, 1, 1, 1]
        with pytest.raises(ValueError, match="first"):
            map_pieces(work, range(6))
        assert running == []


def power(columns):
    return np.sum(columns**2, axis=0)


@pytest.mark.parametrize("seed", range(3))
def test_a_random_step_bounds_the_smallest_eigenvalue(seed):
    rng = np.random.default_rng(seed)
    values = np.sort(10.0 ** rng.uniform(-3, 0, 60))[:, None]
    step = rng.standard_normal((60, 1))
    for reduction in (1e-2, 1e-6, 1e-10, 1e-13):
        back = -values * step
        found = descend(lambda x: values * x, back, power, reduction**2 * power(back), 500)
        length = float(np.linalg.norm(step + found.steps))
        least = least_eigenvalue(found.ritz[0], length)
        assert least <= values[0, 0]
        assert (least > 0.01 * values[0, 0]) == (length < 1e-6)
    left = 0.25 * FAILURE * np.sqrt(np.pi / 2)
    assert least_eigenvalue(np.array([2.0]), left) == pytest.approx(1.5, rel=1e-6)


def test_many_coefficients_that_fall_too_slowly_are_given_up_and_few_are_not():
    for size, passes in ((3999, 150), (4000, 100)):
        values, start = np.geomspace(1e-8, 1.0, size)[:, None], np.ones((size, 1))
        found = descend(lambda x, h=values: h * x, start, power, 1e-24 * power(start), 150)
        assert (found.passes, found.reached[0]) == (passes, False)


def correlated():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 4, 3)) @ np.array([[2, 0, 0], [1, 1, 0], [0, 1, 0.5]])
    return X + np.array([0.5, 0.0, -1.0]), rng.standard_normal((120, 2))


def objective(result, X, Y):
    theta = oracle.features_of(result.coef, {})
    penalty = np.sum(oracle.squared_sizes({}, 3, 3)[:, None] * theta**2)
    return float(np.sum((Y - oracle.plain_design(X) @ theta) ** 2) + result.ridge * penalty)


@pytest.mark.parametrize("ridge", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("reduction", [1e-1, 1e-2, 1e-4])
def test_the_stated_closeness_covers_the_excess(monkeypatch, reduction, ridge):
    monkeypatch.setattr(normal_equations, "GRADIENT_REDUCTION", reduction)
    X, Y = correlated()
    found, best = (pa.fit(X, Y, ridge=ridge, solver=name) for name in ("iterative", "direct"))
    excess, possible = objective(found, X, Y) - objective(best, X, Y), float(np.sum(Y**2))
    assert 1e-14 * possible < excess < found.objective_bound < 1e5 * reduction**2 * possible


def test_an_approximation_is_not_called_the_minimiser(monkeypatch):
    """Where nothing else fits into memory; else another solver takes over."""
    X, Y = correlated()
    monkeypatch.setattr(solving, "MAX_PASSES", 2)
    other = pa.fit(X, Y, ridge=1.0, solver="iterative")
    exact = pa.fit(X, Y, ridge=1.0, solver="direct")
    assert (other.outcome.ok, other.solver) == (True, "primal")
    assert oracle.relative_error(other.coef, exact.coef) < 1e-12
    monkeypatch.setattr(planning, "memory_limit", lambda: 6000)
    result = pa.fit(X, Y, ridge=1.0, solver="iterative")
    assert (result.outcome.ok, result.solver) == (False, "iterative")
    assert objective(result, X, Y) > (1 + 1e-6) * objective(exact, X, Y)


@pytest.mark.parametrize("ridge", [0.0, 10.0])
def test_single_precision_has_the_same_equations_in_any_units(monkeypatch, ridge):
    """L^T (H + ridge) L, with H of the features by hand and L from the whitening itself."""
    monkeypatch.setattr("polyattn.solve.whitened_rows.LEAST_NUMBERS", 0)
    (X, Y), fields = correlated(), {"intercept": True}
    rows = Rows.build(X * [1.0, 8.0, 0.25], Y, pa.Form(**fields))
    system, rng = normal_equations.FeatureEquations.of(rows, ridge, 10), np.random.default_rng(2)
    z = rng.standard_normal((rows.n_features, 3))
    theta = system.whitening.theta(z)
    X = np.ldexp(X * [1.0, 8.0, 0.25], -rows.token_exponent)
    phi = oracle.design(X, fields) / np.sqrt(oracle.squared_sizes(fields, 3, 4))
    expected = system.whitening.gradient(phi.T @ (phi @ theta) + ridge * theta)
    assert oracle.relative_error(system.whitened_rows.product(z, ridge), expected) < 1e-5


def test_summaries_that_are_not_kept_are_not_gathered_for_pivots(monkeypatch):
    X, Y = correlated()
    few = Rows.build(X, Y, pa.Form())
    assert PivotedRows.of(few, 0.0) is not None
    monkeypatch.setattr("polyattn.stats.rows.KEPT_NUMBERS", 100)
    assert PivotedRows.of(few, 0.0) is None


def test_a_kernel_of_rows_is_made_of_so_many_numbers_of_sums_and_queries_and_no_more(monkeypatch):
    passes = FeaturePasses(Rows.build(correlated()[0][:9], None, pa.Form()))
    for most, is_made in ((9 * (6 + 3), True), (9 * (6 + 3) - 1, False)):
        monkeypatch.setattr("polyattn.solve.row_kernel.MOST_NUMBERS", most)
        assert (RowKernel.of(passes, np.ones(9), 1.0) is not None) == is_made


def test_what_many_rows_show_above_rounding_is_data():
    """Coordinates apart by 5e-11 of their size; sums of N roundings grow as the root of N."""
    x = np.random.default_rng(0).standard_normal((100_000, 1, 2))
    x[..., 1] = x[..., 0] + 5e-11 * x[..., 1]
    queries = second_moments(Rows.build(x, None, pa.Form()))[1]
    assert np.all(queries.turned(np.eye(2))[0] > 0)


def problem(n_classes, ridge):
    X, labels = oracle.class_task(200, 5, 3, n_classes)
    passes = FeaturePasses(Rows.build(X, None, pa.Form()))
    loss = LogLoss(labels, np.ones(len(labels)), n_classes)
    gram = passes.weighted_gram(loss.weights)
    space = curvature_model.search_space(passes, loss.weights, gram, 2 * ridge)
    inverse = space.inverse(space.penalised(loss.first_curvature * space.gram, 2 * ridge))
    return X, passes, loss, space, newton.minimise(passes, loss, ridge, inverse, space)


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_bounds_of_log_loss_hold_near_and_far(n_classes, ridge):
    _, passes, loss, space, best = problem(n_classes, ridge)
    steps = newton._Newton(passes, loss, ridge, np.zeros_like, space)
    rng, proved = np.random.default_rng(0), 0
    for size in 10.0 ** np.arange(-8, 1):
        move = size * rng.standard_normal(best.theta.shape) * np.linalg.norm(best.theta)
        move -= move.mean(axis=1, keepdims=True) if n_classes > 2 else 0.0
        there = steps.at(best.theta + move)
        gap = there.objective - best.objective
        bound = solve_logistic.decrement_bound(passes, there, ridge, space)
        assert bound >= gap - 1e-12 * best.objective
        if np.isfinite(bound):
            proved += 1
            assert bound <= 60 * gap + 1e-12 * best.objective
    assert proved >= 2


def test_rounding_of_the_gradient_is_bounded():
    X, passes, loss, _, found = problem(2, 0.1)
    phi = oracle.plain_design(X).astype(np.longdouble) / np.sqrt(oracle.squared_sizes({}, 3, 3))
    theta = found.theta.astype(np.longdouble)
    signs = np.where(loss.codes == 1, 1.0, -1.0)
    wrong = 1 / (1 + np.exp(signs * (phi @ theta)[:, 0]))
    exact = -(phi.T @ (signs * wrong))[:, None] + 0.2 * theta
    rounding = solve_logistic.gradient_rounding(passes, found, 0.1, np.ones(passes.n_features))
    assert 0 < np.linalg.norm(exact - found.gradient) <= rounding


@pytest.mark.parametrize("n_classes", [2, 3])
def test_curvatures_are_those_of_the_loss_and_third_derivatives_are_bounded(n_classes):
    rng = np.random.default_rng(2)
    loss = LogLoss(rng.integers(0, n_classes, 200), np.ones(200), n_classes)
    outputs, move = 3 * rng.standard_normal((2, loss.n_outputs, 200))
    h, point = 1e-5, loss.at(outputs)
    curved = (loss.at(outputs + h * move).slopes - loss.at(outputs - h * move).slopes) / (2 * h)
    np.testing.assert_allclose(point.curved(move), curved, atol=1e-6)

    def second(t):
        return np.sum(move * loss.at(outputs + t * move).curved(move), axis=0)

    third = (second(h) - second(-h)) / (2 * h)
    size = loss.third_derivative_factor * np.linalg.norm(move, axis=0)
    assert np.all(np.abs(third) <= size * second(0.0) + 1e-8)
    centred = move - (move.mean(axis=0) if n_classes > 2 else 0.0)
    least = point.least_curvature * np.sum(centred**2, axis=0)
    assert np.all(second(0.0) >= least * (1 - 1e-12))


def test_large_outputs_neither_overflow_nor_lose_digits():
    outputs = np.array([[800.0, -800.0, 0.0], [-800.0, 40.0, 0.0], [0.0, 0.0, 0.0]])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        point = LogLoss(np.array([0, 1, 2]), np.ones(3), 3).at(outputs)
        pair = LogLoss(np.array([1, 1, 0]), np.ones(3), 2).at(np.array([[800.0, -800.0, 40.0]]))
    assert point.losses[1] == pytest.approx(np.exp(-40.0), rel=1e-12)
    np.testing.assert_allclose(pair.losses, [0.0, 800.0, 40.0], atol=1e-15)
