"""Errors over ridges by each rule: against brute force, formula and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import RidgeCV

import polyattn as pa
from polyattn.features import sequence_sums, summaries
from polyattn.numerics.scaling import EPS
from polyattn.reference import erm, features
from polyattn.sequences import MODES
from polyattn.solve.decomposition import DEFAULT_GRID
from ridge_tasks import (
    RIDGES,
    SHAPES,
    Task,
    fitted,
    generalised,
    largest_power,
    left_out,
    make_task,
)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES)
def test_loo_is_brute_force_over_sequences(shape, mode, weighted):
    task = make_task(shape, mode, weighted=weighted)
    path = fitted(task, ridge="loo").ridge_path
    assert path.kind == "loo"
    np.testing.assert_allclose(path.ridges, RIDGES)
    np.testing.assert_allclose(path.errors, [left_out(task, r) for r in RIDGES], rtol=1e-8)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", ["tall", "wide", "ragged tall"])
def test_loo_with_bias(shape, mode):
    task = make_task(shape, mode, bias=True)
    path = fitted(task, ridge="loo").ridge_path
    np.testing.assert_allclose(path.errors, [left_out(task, r) for r in RIDGES], rtol=1e-8)


@given(
    lengths=st.lists(st.integers(1, 5), min_size=2, max_size=8),
    mode=st.sampled_from(MODES),
    seed=st.integers(0, 2**32),
    weighted=st.booleans(),
)
@settings(max_examples=40)
def test_loo_is_brute_force_for_any_lengths(lengths, mode, seed, weighted):
    task = make_task((lengths, 2), mode, weighted, seed=seed)
    path = fitted(task, ridge="loo").ridge_path
    expected = np.array([left_out(task, r) for r in RIDGES])
    # What is left may determine nothing: the ridge alone then holds rounding of the moments down.
    rounding = EPS * largest_power(task) / RIDGES
    assert np.all(abs(path.errors - expected) <= (1e-8 + 40 * rounding) * expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", ["tall", "ragged tall", "wide"])
def test_loo_does_not_depend_on_blocks(monkeypatch, shape, mode):
    task = make_task(shape, mode, weighted=True)
    expected = fitted(task, ridge="loo").ridge_path.errors
    monkeypatch.setattr(summaries, "BLOCK_NUMBERS", 1)
    monkeypatch.setattr(summaries, "MIN_BLOCK_ROWS", 3)
    monkeypatch.setattr(sequence_sums, "TOKEN_BLOCK", 4)
    np.testing.assert_allclose(fitted(task, ridge="loo").ridge_path.errors, expected, rtol=1e-10)


def test_a_sequence_is_left_out_as_a_whole():
    """Negative control: leaving out single positions gives another, smaller error."""
    task = make_task("tall", "causal")
    by_sequence = left_out(task, 1.0)
    by_position = left_out(task, 1.0, groups=np.arange(len(task.rows)))
    assert abs(by_position / by_sequence - 1) > 1e-3
    path = fitted(task, ridge="loo", ridge_grid=[1.0]).ridge_path
    assert path.errors[0] == pytest.approx(by_sequence, rel=1e-9)


@pytest.mark.parametrize("n_sequences", [4, 6, 40])
def test_loo_is_ridge_cv_of_scikit_learn(n_sequences):
    task = make_task(([3] * n_sequences, 2), "last")
    rival = RidgeCV(alphas=RIDGES, fit_intercept=False, store_cv_results=True)
    rival.fit(erm.design(task.X, "last") / features.norm_weights(2), task.rows)
    result = fitted(task, ridge="loo")
    assert result.ridge == pytest.approx(rival.alpha_)
    # scikit-learn averages over outputs, we add them up.
    errors = rival.cv_results_.mean(axis=0).sum(axis=0)
    np.testing.assert_allclose(result.ridge_path.errors, errors, rtol=1e-8)
    found = result.coef.reshape(2, -1) * features.norm_weights(2)
    np.testing.assert_allclose(found, rival.coef_, rtol=1e-7, atol=1e-12)


def test_rank_deficient_data_and_a_tiny_ridge():
    """Constant and repeated coordinates; the ridge is what makes the problem definite."""
    for mode in MODES:
        task = make_task("tall", mode)
        flat = [np.column_stack([x, x[:, 0], np.ones(len(x))]) for x in task.X]
        task = Task(flat, task.rows, task.lengths, task.mode, None, False)
        grid = [1e-3, 1.0]
        path = fitted(task, ridge="loo", ridge_grid=grid).ridge_path
        np.testing.assert_allclose(path.errors, [left_out(task, r) for r in grid], rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_duplicated_sequences(mode):
    """A copy is left out, too: each is twice the weight of one."""
    task = make_task("wide", mode)
    doubled = Task(
        task.X * 2, np.concatenate([task.rows] * 2), task.lengths * 2, mode, None, False
    )  # fmt: skip
    path = fitted(doubled, ridge="loo", ridge_grid=[1e-3, 1.0]).ridge_path
    expected = [left_out(task, r / 2) for r in (1e-3, 1.0)]
    np.testing.assert_allclose(path.errors, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", ["tall", "wide"])
@pytest.mark.parametrize("rule", ["loo", "gcv"])
@pytest.mark.parametrize("mode", MODES)
def test_sequences_without_weight_are_as_if_absent(mode, rule, shape):
    task = make_task(shape, mode)
    weights = np.arange(len(task.X)) % 2.0
    kept = np.repeat(weights > 0, task.row_counts)
    some = Task(task.X[1::2], task.rows[kept], task.lengths[1::2], mode, None, False)
    whole = Task(task.X, task.rows, task.lengths, mode, weights, False)
    path, expected = (fitted(each, ridge=rule).ridge_path for each in (whole, some))
    np.testing.assert_allclose(path.errors, expected.errors, rtol=1e-9)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES)
def test_gcv_is_its_formula(shape, mode):
    """mean ||(I - H) y||^2 / (1 - tr H / N)^2 with H the hat matrix, formed."""
    task = make_task(shape, mode)
    path = fitted(task, ridge="gcv").ridge_path
    assert path.kind == "gcv"
    # Moments know the residual of few rows only as a difference of sums of squares.
    np.testing.assert_allclose(path.errors, generalised(task, RIDGES), rtol=1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", ["wide", "single tokens wide", "square"])
def test_gcv_of_few_rows_is_not_fooled_by_cancellation(shape, mode, seed):
    """Few rows are met exactly as the ridge falls: 0 / 0, where rounding must not win."""
    task = make_task(shape, mode, seed=seed)
    path = fitted(task, ridge="gcv", ridge_grid=None).ridge_path
    truth = generalised(task, path.ridges)
    chosen = truth[int(np.argmin(path.errors))]
    assert chosen <= 1.01 * truth.min()


def test_gcv_of_moments_is_gcv_of_the_data():
    task = make_task("tall", "causal")
    stats = pa.Moments(2, 2, "causal").update(task.X, task.Y)
    streamed = pa.fit(statistics=stats, ridge="gcv")
    whole = fitted(task, ridge="gcv", ridge_grid=None)
    assert streamed.ridge == pytest.approx(whole.ridge)
    np.testing.assert_allclose(streamed.ridge_path.errors, whole.ridge_path.errors, rtol=1e-9)
    np.testing.assert_allclose(streamed.coef, whole.coef, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_gcv_of_moments_that_are_singular(seed):
    """Eigenvalues of rounding, some of them negative, are zero."""
    task = make_task("tall", "last", seed=seed)
    flat = [np.column_stack([x, x[:, 0]]) for x in task.X]
    task = Task(flat, task.rows, task.lengths, "last", None, False)
    path = pa.fit(
        statistics=pa.Moments(3, 2).update(flat, task.Y), ridge="gcv", ridge_grid=RIDGES
    ).ridge_path
    np.testing.assert_allclose(path.errors, generalised(task, RIDGES), rtol=1e-9)


def test_gcv_of_the_moments_of_few_rows():
    """What is left of the freedom is 1e-14 of it, and must not round away."""
    task = make_task("wide", "last")
    ridges = [1e-14 * largest_power(task)]
    moments = pa.Moments(3, 2).update(task.X, task.Y)
    path = pa.fit(statistics=moments, ridge="gcv", ridge_grid=ridges).ridge_path
    np.testing.assert_allclose(path.errors, generalised(task, ridges), rtol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_gcv_of_exact_data_is_not_fooled_by_rounding(seed):
    """Targets of a layer: no error is left, and what the sums round to is none."""
    task = pa.data.planted(60, 4, 2, n_heads=2, mode="last", random_state=seed)
    moments = pa.Moments(2, np.shape(task.Y)[1]).update(task.X, task.Y)
    path = pa.fit(statistics=moments, ridge="gcv").ridge_path
    power = np.mean(np.sum(np.square(task.Y), axis=1))
    assert np.all(path.errors > 0)
    assert path.errors[0] < (100 * DEFAULT_GRID[0]) ** 2 * power
    assert path.best == path.ridges[0]
