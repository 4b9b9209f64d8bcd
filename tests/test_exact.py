"""The exact road: taken only where a layer computes all targets, and then the same answer."""

from __future__ import annotations

import numpy as np
import pytest

import polyattn as pa
from polyattn.sequences import MODES
from polyattn.solve.exact import SAMPLE_SEQUENCES, solve_exact
from polyattn.stats.rows import Rows


def task(mode="causal", d=3, n_sequences=600, n_tokens=7, seed=0, **more):
    made = pa.data.planted(
        n_sequences, n_tokens, d, n_heads=2, mode=mode, random_state=seed, **more
    )
    return np.asarray(made.X), np.array(made.Y)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("weighted", [False, True])
def test_exact_data_give_the_same_layer_as_all_sums(mode, weighted):
    X, Y = task(mode)
    weights = np.random.default_rng(0).uniform(0.0, 2.0, len(X)) if weighted else None
    found = pa.fit(X, Y, mode=mode, sample_weight=weights)
    expected = pa.fit(X, Y, mode=mode, sample_weight=weights, solver="primal")
    assert (found.solver, expected.solver) == ("exact", "primal")
    np.testing.assert_allclose(found.coef, expected.coef, atol=1e-12 * abs(expected.coef).max())
    assert found.rank == expected.rank == found.n_features
    assert found.risk <= 1e-26 * np.mean(Y**2)
    assert "unique global optimum" in str(found.outcome)
    assert "all others agree" in str(found.outcome)


@pytest.mark.parametrize("scale", [1e-120, 1.0, 1e90])
def test_the_size_of_the_data_does_not_matter(scale):
    X, Y = task()
    found = pa.fit(X, scale * Y, mode="causal")
    assert found.solver == "exact"
    expected = scale * pa.fit(X, Y, mode="causal", solver="primal").coef
    np.testing.assert_allclose(found.coef, expected, atol=1e-12 * abs(expected).max())


def test_noise_takes_the_usual_road():
    X, Y = task(noise=1e-9)
    assert pa.fit(X, Y, mode="causal").solver == "primal"


def test_each_output_has_to_agree():
    """An output of noise that is tiny beside the others still gets its own least squares."""
    X, Y = task()
    Y[..., 0] = 1e-20 * np.random.default_rng(1).standard_normal(Y.shape[:2])
    found = pa.fit(X, Y, mode="causal")
    expected = pa.fit(X, Y[..., 0], mode="causal", solver="direct")
    assert found.solver == "primal"
    np.testing.assert_allclose(found.coef[:1], expected.coef, rtol=1e-9, atol=1e-32)


def test_one_row_that_disagrees_decides():
    X, Y = task()
    Y[-1, -1] += 1e-6
    found = pa.fit(X, Y, mode="causal")
    assert found.solver == "primal"
    assert found.risk > 0


def test_a_sample_that_determines_nothing_is_left():
    X, Y = task("last")
    X[:300] = 1.0
    Y[:300] = 0.0
    assert pa.fit(X, Y).solver == "primal"


def test_outputs_of_zeros_agree():
    X, Y = task()
    Y[..., 1] = 0.0
    found = pa.fit(X, Y, mode="causal")
    assert found.solver == "exact"
    assert not found.coef[1].any()


def test_few_rows_are_not_sampled():
    X, Y = task(n_sequences=SAMPLE_SEQUENCES)
    assert solve_exact(Rows.build(X, Y, "causal", False)) is None


def test_ridge_and_heads_need_the_sums():
    X, Y = task()
    assert pa.fit(X, Y, mode="causal", ridge=1e-3).solver == "primal"
    assert pa.fit(X, Y, mode="causal", ridge="gcv").solver == "primal"
    limited = pa.fit(X, Y, mode="causal", n_heads=2)
    assert limited.gap <= 1e-20


def test_the_sums_are_there_when_asked_for(tmp_path):
    X, Y = task()
    kept = X.copy(), Y.copy()
    found = pa.fit(X, Y, mode="causal")
    X[:], Y[:] = np.nan, np.nan  # what the caller does later changes nothing
    expected = pa.Moments(3, 3, "causal").update(*kept)
    assert found.statistics.n_rows == expected.n_rows
    pa.save(found, tmp_path / "result")
    for sums in (found.statistics, pa.load(tmp_path / "result").statistics):
        np.testing.assert_allclose(sums.gram, expected.gram, rtol=1e-12)
        np.testing.assert_allclose(sums.cross, expected.cross, rtol=1e-9, atol=1e-12)


def test_an_estimator_continues_after_exact_data():
    X, Y = task("last", n_sequences=2000)
    model = pa.LinearAttentionRegressor().fit(X[:1500], Y[:1500])
    assert model.result_.solver == "exact"
    model.partial_fit(X[1500:], Y[1500:] + 1.0)
    expected = pa.fit(X, np.concatenate([Y[:1500], Y[1500:] + 1.0]), solver="primal")
    np.testing.assert_allclose(model.result_.coef, expected.coef, rtol=1e-8, atol=1e-10)
