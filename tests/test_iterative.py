"""The iterative solver: whitening, conjugate gradients, what was reached, and which optimum."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import planted
import polyattn as pa
from polyattn.features.products import features
from polyattn.features.summaries import SeenSequences
from polyattn.solve import (
    conjugate_gradients,
    iterative,
    normal_equations,
    pivoted_rows,
    planning,
    solving,
    whitened_rows,
)
from polyattn.solve.conjugate_gradients import descend
from polyattn.solve.iterative import solve_iterative
from polyattn.solve.normal_equations import FeatureEquations
from polyattn.solve.pivoted_rows import PivotedRows
from polyattn.solve.whitened_rows import WhitenedRows
from polyattn.solve.whitening import Whitening
from polyattn.stats import rows as rows_module
from polyattn.stats.rows import Rows

FORMS = {
    "papers": pa.Form(),
    "causal": pa.Form(mode="causal", bias=True),
    "full": pa.Form(mode="full"),
    "in context": pa.Form(include_query=False, mean=True, query=[0, 1], value=[2]),
    "skip": pa.Form(skip=True),
    "intercept": pa.Form(intercept=True),
    "both": pa.Form(mode="causal", skip=True, intercept=True, query=[0, 1]),
    "two scales": pa.Form(mode="causal", decay=[0.5, 0.9]),
    "lags": pa.Form(mode="causal", lags=1, intercept=True),
}


@cache
def data(mode: str = "last", n_sequences: int = 120, seed: int = 0):
    """Correlated tokens around a mean, and noise as targets."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_sequences, 4, 3)) @ np.array([[2, 0, 0], [1, 1, 0], [0, 1, 0.5]])
    X += np.array([0.5, 0.0, -1.0])
    return X, rng.standard_normal((n_sequences, 2) if mode == "last" else (n_sequences, 4, 2))


def rows_of(form: pa.Form, weights=None) -> Rows:
    return Rows.build(*data(form.mode), form, weights)


def dense_features(rows: Rows) -> np.ndarray:
    """Weighted features (rows, p) in the coordinates of the norm."""
    blocks = [features(rows.layout, block.sums, block.queries) for block in rows.blocks()]
    return np.concatenate(blocks, axis=1).T / rows.layout.feature_weights


# Whitening ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 10.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_whitening_makes_the_product_of_both_factors_one(name, weighted, ridge):
    """L^T K L = 1, with K written out."""
    weights = np.random.default_rng(1).uniform(0.5, 3, 120) if weighted else None
    rows = rows_of(FORMS[name], weights)
    layout, (n_sums, n_queries) = rows.layout, rows.layout.block
    blocks = list(rows.blocks())
    sums = np.concatenate([block.sums for block in blocks], axis=1) / layout.norm_weights[:, None]
    queries = np.concatenate([block.queries for block in blocks], axis=1)
    row_weights = np.ones(rows.n_rows) if weights is None else rows.row_weights
    of_sums = (row_weights * sums[:n_sums]) @ sums[:n_sums].T / row_weights.sum()
    full = np.kron(of_sums, queries[:n_queries] @ queries[:n_queries].T)
    if layout.form.intercept:
        full = np.pad(full, (0, 1))
        full[-1, -1] = row_weights.sum()
    full += ridge * np.eye(len(full))
    found = Whitening.of(rows, ridge)
    root = found.theta(np.eye(len(full)))
    np.testing.assert_allclose(root.T @ full @ root, np.eye(len(full)), atol=1e-9)
    np.testing.assert_allclose(found.gradient(np.eye(len(full))), root.T, atol=1e-15)
    assert found.n_seen == len(full)


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
def test_entries_that_are_always_zero_get_no_coefficient(ridge):
    X, Y = (part.copy() for part in data())
    X[:, -1, 1] = 0.0
    found, expected = (pa.fit(X, Y, ridge=ridge, solver=name) for name in ("iterative", "direct"))
    assert np.all(found.coef[:, :, 1] == 0)
    assert planted.relative_error(found.coef, expected.coef) < 1e-10
    assert ("6 of 18 directions" in str(found.outcome)) == (ridge == 0)


def test_whitened_spectra_are_near_one():
    """Tokens of sizes 1 to 0.01 along unknown directions need no more passes than others."""
    rng = np.random.default_rng(0)
    mixing = np.linalg.qr(rng.standard_normal((4, 4)))[0] * np.geomspace(1, 0.01, 4)
    X, Y = rng.standard_normal((2000, 6, 4)), rng.standard_normal((2000, 1))
    plain, mixed = (
        FeatureEquations.of(Rows.build(x, Y, pa.Form()), 0.0, 2000) for x in (X, X @ mixing.T)
    )
    passes = [system.solved(in_norm=False).passes for system in (plain, mixed)]
    assert max(passes) < 35
    assert mixed.solved(in_norm=True).passes > 10 * passes[1]


# Conjugate gradients ------------------------------------------------------------------------


def test_ritz_values_are_the_ends_of_the_spectrum():
    values = np.linspace(0.5, 7.0, 12)[:, None]
    rhs = np.random.default_rng(0).standard_normal((12, 3)) * [1.0, 0.0, 1e-9]
    power = lambda columns: np.sum(columns**2, axis=0)  # noqa: E731
    found = descend(lambda x: values * x, rhs, power, 1e-28 * power(rhs), 100)
    np.testing.assert_allclose(found.steps, rhs / values, rtol=1e-10)
    assert found.reached.all()
    assert (found.smallest, found.largest) == pytest.approx((0.5, 7.0))
    none = descend(lambda x: values * x, 0 * rhs, power, np.zeros(3), 100)
    assert (none.passes, none.reached.all(), np.isnan(none.smallest)) == (0, True, True)


def test_a_descent_that_does_not_fall_ends(monkeypatch):
    """Rounding of a Hilbert matrix ends all progress long before 1e-30."""
    monkeypatch.setattr(conjugate_gradients, "STALLED_PASSES", 20)
    matrix = 1.0 / (np.arange(30)[:, None] + np.arange(30) + 1.0)
    rhs = np.ones((30, 1))
    found = descend(
        lambda x: matrix @ x, rhs, lambda g: np.sum(g**2, axis=0), np.array([1e-60]), 10**6
    )
    assert not found.reached.any()
    assert found.passes < 1000


def test_a_wide_descent_that_is_slow_ends_soon(monkeypatch):
    """Eigenvalues over twelve orders: 5000 passes would not do."""
    values = np.geomspace(1e-12, 1.0, 200)[:, None]
    power = lambda columns: np.sum(columns**2, axis=0)  # noqa: E731
    rhs = np.sqrt(values)

    def passes() -> int:
        return descend(lambda x: values * x, rhs, power, 1e-24 * power(rhs), 1000).passes

    assert passes() > 500
    monkeypatch.setattr(conjugate_gradients, "MANY_COEFFICIENTS", 200)
    monkeypatch.setattr(conjugate_gradients, "TOO_LONG", 0.5)
    assert passes() < 200
    # One that falls as it should is not ended.
    monkeypatch.setattr(conjugate_gradients, "JUDGED_PASSES", 5)
    values = np.geomspace(0.1, 1.0, 200)[:, None]
    found = descend(lambda x: values * x, rhs, power, 1e-24 * power(rhs), 100)
    assert found.reached.all()


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_few_rows_with_a_ridge_go_where_passes_are_fewer(monkeypatch, scale):
    """Even features in the coordinates of the norm, uneven ones whitened; the same minimiser."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((5, 5)))[0] * np.geomspace(1, scale, 5)
    X, Y = rng.standard_normal((50, 6, 5)) @ turn, rng.standard_normal((50, 2))
    tried, true = [], FeatureEquations.solved

    def solved(system, in_norm):
        tried.append(in_norm)
        return true(system, in_norm)

    monkeypatch.setattr(FeatureEquations, "solved", solved)
    found, exact = (pa.fit(X, Y, ridge=1e-2, solver=name) for name in ("iterative", "direct"))
    assert tried == [scale == 1.0]
    assert found.solver == "iterative"
    assert planted.relative_error(found.coef, exact.coef) < 1e-9


# What was reached ---------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("reduction", [1e-1, 1e-2, 1e-4])
def test_the_stated_closeness_covers_the_excess(monkeypatch, reduction, ridge):
    monkeypatch.setattr(normal_equations, "GRADIENT_REDUCTION", reduction)
    X, Y = data()
    found, best = (pa.fit(X, Y, ridge=ridge, solver=name) for name in ("iterative", "direct"))
    power = float(np.sum(Y**2))

    def objective(result):
        s = planted.features.norm_weights(3)
        theta = result.coef.reshape(len(result.coef), -1) * s
        return result.risk * len(X) + ridge * float(np.sum(theta**2))

    excess = objective(found) - objective(best)
    stated = float(re.search(r"all but at most (\S+) of", str(found.outcome))[1])
    assert 1e-14 < excess / (power - objective(best)) < stated < 1e5 * reduction**2
    assert excess < found.objective_bound < 1e5 * reduction**2 * power


def test_an_approximation_is_not_called_the_minimiser(monkeypatch):
    """Where nothing else fits into memory; else another solver takes over."""
    monkeypatch.setattr(solving, "MAX_PASSES", 2)
    with monkeypatch.context() as patch:
        patch.setattr(planning, "memory_limit", lambda: 6000)
        result = pa.fit(*data(), ridge=1.0, solver="iterative")
    assert (result.outcome.ok, result.solver) == (False, "iterative")
    assert "was approached" in str(result.outcome)
    assert "stopped after 2 passes" in str(result.outcome)
    other = pa.fit(*data(), ridge=1.0, solver="iterative")
    assert (other.outcome.ok, other.solver) == (True, "primal")
    assert re.search(r"given up after 2 passes.*solver='primal' took its place", str(other.outcome))
    assert "approximation" not in str(other.outcome)
    exact = pa.fit(*data(), ridge=1.0, solver="direct")
    assert planted.relative_error(other.coef, exact.coef) < 1e-12


def test_a_stall_keeps_the_summaries_for_the_solver_that_takes_over(monkeypatch):
    monkeypatch.setattr(solving, "MAX_PASSES", 2)
    read, before = [], Rows.read_blocks

    def counting(rows, *args):
        read.append(rows.n_rows)
        return before(rows, *args)

    monkeypatch.setattr(Rows, "read_blocks", counting)
    assert pa.fit(*data(), solver="iterative").solver == "primal"
    # Once for all, and once for the sample that judges heads.
    assert sum(read) <= 2 * 120


def test_an_iteration_may_take_as_long_as_another_solver_would():
    rows, most = rows_of(pa.Form()), normal_equations.MAX_PASSES
    other = planning.plan_of(rows, keep_sums=True)
    passes = [
        solving._affordable_passes(rows, planning.plan_of(rows, name), replace(other, seconds=s))
        for name, s in (("auto", 1e9), ("iterative", 0.0), ("iterative", 1e9))
    ]
    assert passes[0] == passes[1] < most
    assert passes[2] == most
    alone = replace(other, solver="iterative")
    assert solving._affordable_passes(rows, planning.plan_of(rows), alone) == most


# Single precision ---------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 10.0])
@pytest.mark.parametrize("name", FORMS)
def test_single_precision_has_the_same_product_of_the_equations(monkeypatch, name, ridge):
    monkeypatch.setattr(whitened_rows, "LEAST_NUMBERS", 0)
    rows = rows_of(FORMS[name], np.random.default_rng(1).uniform(0.5, 3, 120))
    system = FeatureEquations.of(rows, ridge, 10)
    columns = np.random.default_rng(2).standard_normal((rows.n_features, 3))
    found = system.whitened_rows.product(columns, ridge)
    exact = dense_features(rows) @ system.whitening.theta(np.eye(rows.n_features))
    penalty = ridge * system.whitening.theta(np.eye(rows.n_features))
    expected = exact.T @ (exact @ columns) + system.whitening.gradient(penalty @ columns)
    assert planted.relative_error(found, expected) < 1e-5


@pytest.mark.parametrize("ridge", [0.0, 1e-2])
@pytest.mark.parametrize("name", FORMS)
def test_descents_in_single_precision_lead_to_the_same_coefficients(monkeypatch, name, ridge):
    rows = rows_of(FORMS[name], np.random.default_rng(1).uniform(0.5, 3, 120))
    expected = solve_iterative(rows, ridge)
    monkeypatch.setattr(whitened_rows, "LEAST_NUMBERS", 0)
    found = solve_iterative(rows, ridge)
    assert found.is_reached
    assert planted.relative_error(found.theta, expected.theta) < (1e-8 if ridge else 1e-9)


def test_small_or_uneven_problems_have_no_copy():
    rows = rows_of(pa.Form())
    assert WhitenedRows.of(rows, Whitening.of(rows, 0.0)) is None


# Pivoted rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize("name", FORMS)
def test_pivoted_rows_span_a_part_of_the_row_space(monkeypatch, name, ridge):
    """P written out: H on the rows that were drawn, one number beside them."""
    monkeypatch.setattr(pivoted_rows, "ROWS_AT_A_TIME", 3)
    monkeypatch.setattr(pivoted_rows, "MOST_ROWS", 7)
    rows = rows_of(FORMS[name], np.random.default_rng(1).uniform(0.5, 3, 120))
    found, phi = PivotedRows.of(rows, ridge), dense_features(rows)
    basis, p = found.basis, rows.n_features
    rank = min(7, p)
    assert basis.shape == (p, rank)
    np.testing.assert_allclose(basis.T @ basis, np.eye(rank), atol=1e-12)
    inside = np.linalg.lstsq(phi.T, basis, rcond=1e-11)[0]
    np.testing.assert_allclose(phi.T @ inside, basis, atol=1e-10)
    seen = basis.T @ (phi.T @ phi + ridge * np.eye(p)) @ basis
    model = basis @ seen @ basis.T + found.rest * (np.eye(p) - basis @ basis.T)
    root = found.theta(np.eye(p))
    np.testing.assert_allclose(root, root.T, atol=1e-12 * abs(root).max())
    np.testing.assert_allclose(root @ model @ root, np.eye(p), atol=1e-3)
    np.testing.assert_allclose(found.inverse(root), np.eye(p), atol=1e-9)


@pytest.mark.parametrize("case", ["mean", "repeated", "zeros", "weights", "one"])
def test_pivoted_rows_lead_to_the_smallest_norm_sooner(monkeypatch, case):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((90, 5, 6)) + 3.0, rng.standard_normal((90, 2))
    weights = None
    if case == "repeated":
        X[45:], Y[45:] = X[:45], Y[:45]
    elif case == "zeros":
        X[::3] = 0.0
    elif case == "weights":
        weights = np.where(np.arange(90) % 2, 0.0, 10.0 ** rng.uniform(-2, 2, 90))
    elif case == "one":
        X, Y = X[:1], Y[:1]
    rows, passes = Rows.build(X, Y, pa.Form(), weights), []
    phi = dense_features(rows)
    targets = np.concatenate([block.targets for block in rows.blocks()], axis=1).T
    expected = np.linalg.lstsq(phi, targets, rcond=1e-10)[0]
    for many in (0, 10**9):
        monkeypatch.setattr(normal_equations, "MANY_COEFFICIENTS", many)
        system = FeatureEquations.of(rows, 0.0, 2000)
        assert (system.pivoted is None) == (many > 0)
        found = system.solved(in_norm=True)
        passes.append(found.passes)
        theta = np.ldexp(found.theta, -system.unit)
        assert planted.relative_error(theta, expected) < 1e-7
    assert passes[0] <= (passes[1] / 2 if case != "one" else 2)


def test_rows_without_features_have_no_pivots():
    rows = Rows.build(np.zeros((4, 3, 2)), np.ones((4, 1)), pa.Form())
    assert PivotedRows.of(rows, 0.0) is None


# Long passes --------------------------------------------------------------------------------


def uneven(n_sequences: int):
    rng = np.random.default_rng(0)
    mixing = np.linalg.qr(rng.standard_normal((5, 5)))[0] * np.geomspace(1, 0.02, 5)
    X = rng.standard_normal((n_sequences, 6, 5)) @ mixing.T
    return X, rng.standard_normal((n_sequences, 2))


@pytest.mark.parametrize(("n_sequences", "ridge"), [(60, 1e-4), (60, 1e-2), (400, 0.0)])
def test_long_passes_end_sooner_and_what_is_left_is_said(monkeypatch, n_sequences, ridge):
    monkeypatch.setattr(normal_equations, "LONG_PASS", 0)
    monkeypatch.setattr(normal_equations, "LONG_REDUCTION", 1e-5)
    X, Y = uneven(n_sequences)
    found, exact = (pa.fit(X, Y, ridge=ridge, solver=name) for name in ("iterative", "direct"))
    stated = re.search(
        r"1e-05 of the gradient was left: coefficients are off by (at most|about) (\S+) of",
        str(found.outcome),
    )
    assert (stated[1] == "at most") == (ridge > 0)
    assert planted.relative_error(found.coef, exact.coef) < 1.5 * float(stated[2]) < 1
    assert "approached" in str(found.outcome)


def test_with_long_passes_uneven_features_are_not_solved_for_the_smallest_norm(monkeypatch):
    tried, true = [], FeatureEquations.solved

    def solved(system, in_norm):
        tried.append(in_norm)
        return true(system, in_norm)

    monkeypatch.setattr(FeatureEquations, "solved", solved)
    monkeypatch.setattr(normal_equations, "LONG_PASS", 0)
    found = pa.fit(*uneven(60), solver="iterative")
    assert tried == [False]
    assert "differ too much in size for the smallest norm" in str(found.outcome)
    assert "smallest in the data's own metric" in str(found.outcome)
    assert found.risk < 1e-12
    monkeypatch.setattr(normal_equations, "LONG_PASS", 1 << 32)
    pa.fit(*uneven(60), solver="iterative")
    assert tried[1:2] == [True]


# Which optimum ------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 1e-2])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_has_the_coefficients_of_the_direct_solver(name, ridge):
    rows = rows_of(FORMS[name], np.random.default_rng(1).uniform(0.5, 3, 120))
    phi = dense_features(rows)
    targets = np.concatenate([block.targets for block in rows.blocks()], axis=1).T
    stacked = np.concatenate([phi, np.sqrt(ridge) * np.eye(phi.shape[1])])
    padded = np.concatenate([targets, np.zeros((phi.shape[1], targets.shape[1]))])
    expected = np.linalg.lstsq(stacked, padded, rcond=1e-11)[0]
    found = solve_iterative(rows, ridge)
    # The ridge alone steadies some directions, beside features of size 1e6 in squares.
    assert planted.relative_error(found.theta, expected) < (1e-8 if ridge else 1e-9)
    assert found.is_reached
    assert found.residual_power == pytest.approx(float(np.sum((targets - phi @ expected) ** 2)))


@pytest.mark.parametrize("kind", ["wide", "flat", "single", "one_hot"])
def test_of_several_optima_the_smallest_is_found_and_it_is_said(kind):
    task = planted.problem(kind, noise=1.0)
    found = pa.fit(task.X, task.Y, solver="iterative")
    assert planted.relative_error(found.coef, task.coef) < 1e-9
    unseen = kind in ("flat", "one_hot")
    assert ("directions there are no data" in str(found.outcome)) == unseen
    assert ("the one of smallest norm" in str(found.outcome)) != unseen


def test_where_the_smallest_norm_is_out_of_reach_another_is_named(monkeypatch):
    """Few rows: the optimum of least theta^T K theta, so z = L^-1 theta is of smallest norm."""
    X, Y = (part[:9] for part in data())
    rows = Rows.build(X, Y, pa.Form())
    solved = FeatureEquations.solved

    def only_whitened(system, in_norm):
        return iterative.replace(solved(system, in_norm), reached=not in_norm)

    monkeypatch.setattr(FeatureEquations, "solved", only_whitened)
    found = solve_iterative(rows, 0.0)
    assert "the data's own metric" in found.note
    assert "out of reach in" in found.note
    whitening = Whitening.of(rows, 0.0)
    phi = dense_features(rows)
    white = phi @ whitening.theta(np.eye(phi.shape[1]))
    expected = whitening.theta(np.linalg.lstsq(white, Y, rcond=1e-10)[0])
    assert planted.relative_error(found.theta, expected) < 1e-9
    np.testing.assert_allclose(phi @ found.theta, Y, atol=1e-9)


def test_features_too_different_for_the_smallest_norm_are_named():
    X, Y = (part[:9] for part in data())
    found = pa.fit(X * [1.0, 1.0, 1e-5], Y, solver="iterative")
    assert "differ too much in size" in str(found.outcome)
    assert found.risk < 1e-18


@pytest.mark.parametrize("ridge", [1e-1, 1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("difference", [1e-7, 1e-8, 1e-10])
def test_differences_that_squares_do_not_show_are_seen(difference, ridge):
    """Nearly equal sequences: with a ridge, what they differ in decides on the coefficients."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((1, 4, 3)), 32, axis=0)
    X += difference * rng.standard_normal(X.shape)
    Y = rng.standard_normal((32, 1))
    penalty = ridge * float(np.linalg.norm(X, axis=(1, 2)).max() ** 6)
    found = pa.fit(X, Y, ridge=penalty, solver="iterative")
    expected = pa.fit(X, Y, ridge=penalty, solver="direct")
    away = planted.relative_error(found.coef, expected.coef)
    assert away < 1e-6 or "coefficients uncertain" in str(found.outcome)
    assert away < 1e-4


def test_coefficients_that_rounding_leaves_uncertain_are_named():
    rng = np.random.default_rng(5)
    X = np.repeat(rng.standard_normal((4, 4, 3)), 8, axis=0)
    X += 1e-6 * rng.standard_normal(X.shape)
    found = pa.fit(X, rng.standard_normal((32, 1)), solver="iterative")
    assert "Rounding leaves its coefficients uncertain" in str(found.outcome)


@pytest.mark.parametrize("seed", range(4))
def test_directions_that_drown_in_rounding_are_left_out_and_named(seed):
    """Tokens of rank three in float32: products of what they lack have 1e-14 of the size."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((34, 7, 3)) @ rng.standard_normal((3, 4))).astype(np.float32)
    Y = pa.data.random_layer(4, 2, 2, "causal", 0)(X)
    found = pa.fit(X, Y, "causal", solver="iterative")
    assert found.risk < 1e-20 * np.mean(Y**2)
    assert "vary by less than 1e-11 of the largest" in str(found.outcome)


@pytest.mark.parametrize("seed", [143, 144, 186])
def test_no_descent_ends_above_its_start(seed):
    """Few rows with weights over twelve orders: rounding takes long descents uphill."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((9, 3, 3)), rng.standard_normal((9, 1))
    weights = 10.0 ** rng.integers(-6, 7, 9)
    found = pa.fit(X, Y, solver="iterative", sample_weight=weights)
    assert found.risk <= weights @ Y[:, 0] ** 2 / weights.sum()
    words = str(found.outcome)
    assert (
        found.risk < 1e-15
        or "How much of the squared error is left" in words
        or (
            "this is an approximation" in words
            and found.risk * weights.sum() <= found.objective_bound
        )
    )


# Invariances --------------------------------------------------------------------------------


@pytest.mark.parametrize("exponents", [[0, 7, 0], [-30, 0, 20]])
def test_units_of_coordinates_change_no_bit(exponents):
    X, Y = data()
    plain = pa.fit(X, Y, solver="iterative")
    scaled = pa.fit(np.ldexp(X, exponents), Y, solver="iterative")
    first, second = np.triu_indices(3)
    powers = np.array(exponents)
    moved = np.ldexp(scaled.coef, (powers[first] + powers[second])[:, None] + powers)
    np.testing.assert_array_equal(moved, plain.coef)
    assert scaled.outcome == plain.outcome


def test_sizes_of_sequences_with_an_absent_coordinate_change_no_bit():
    """Directions without data beside a coordinate that is always zero."""
    X, Y = (part[:1] for part in data())
    X = X * [1.0, 0.0, 1.0]
    plain = pa.fit(X, Y, ridge=1e-3, solver="iterative")
    scaled = pa.fit(np.ldexp(X, 3), Y, ridge=float(np.ldexp(1e-3, 18)), solver="iterative")
    np.testing.assert_array_equal(np.ldexp(scaled.coef, 9), plain.coef)


@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_orders_duplicates_weights_and_types_say_the_same(ridge):
    X, Y = (part.astype(np.float32) for part in data())
    rng = np.random.default_rng(3)
    order, counts = rng.permutation(len(X)), rng.integers(0, 3, len(X))
    plain = pa.fit(X, Y, ridge=ridge, solver="iterative").coef
    wide = pa.fit(X.astype(float), Y.astype(float), ridge=ridge, solver="iterative")
    np.testing.assert_array_equal(wide.coef, plain)
    permuted = pa.fit(X[order], Y[order], ridge=ridge, solver="iterative")
    assert planted.relative_error(permuted.coef, plain) < 1e-10
    repeated = pa.fit(X.repeat(counts, 0), Y.repeat(counts, 0), ridge=ridge, solver="iterative")
    weighted = pa.fit(X, Y, ridge=ridge, solver="iterative", sample_weight=counts)
    assert planted.relative_error(repeated.coef, weighted.coef) < 1e-9


@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 3, 2), (5, 2, 1)])
def test_the_smallest_problems(shape, ridge):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal(shape), rng.standard_normal((shape[0], 2))
    found, expected = (pa.fit(X, Y, ridge=ridge, solver=name) for name in ("iterative", "direct"))
    assert planted.relative_error(found.coef, expected.coef) < 1e-12


def test_outputs_of_different_size_do_not_wait_for_each_other():
    X, Y = data()
    found = pa.fit(X, Y * [1.0, 1e-120], solver="iterative")
    for at, size in enumerate((1.0, 1e-120)):
        alone = pa.fit(X, Y[:, at] * size, solver="direct")
        assert planted.relative_error(found.coef[at] / size, alone.coef[0] / size) < 1e-10


# Passes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps", [True, False])
def test_tokens_are_read_once_while_summaries_fit(monkeypatch, keeps):
    monkeypatch.setattr(rows_module, "KEPT_NUMBERS", 0)
    monkeypatch.setattr(iterative, "kept_numbers", lambda: 10**6 if keeps else 0)
    read, true = [], SeenSequences.blocks

    def counted(seen, *given):
        read.append(1)
        return true(seen, *given)

    monkeypatch.setattr(SeenSequences, "blocks", counted)
    rows = rows_of(FORMS["papers"])
    found = solve_iterative(rows, 1.0)
    assert (len(read) == 1) == keeps
    assert keeps or len(read) > int(re.search(r"(\d+) passes", found.note)[1])
