"""The exact solver: taken only where a layer computes all targets, and then the same answer."""

from __future__ import annotations

import numpy as np
import pytest

import polyattn as pa
from polyattn.form import Form
from polyattn.progress import listening
from polyattn.sequences import MODES
from polyattn.solve import exact
from polyattn.solve.exact import SAMPLE_SEQUENCES, WORTHWHILE, solve_exact
from polyattn.stats import rows
from polyattn.stats.rows import Rows


def task(mode="causal", d=3, n_sequences=1300, n_tokens=7, seed=0, **more):
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


def test_noise_takes_the_usual_solver():
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
    assert solve_exact(Rows.build(X, Y, Form("causal"))) is None


@pytest.mark.parametrize("missing", [0, 1])
def test_a_sample_is_tried_where_it_is_a_small_part(missing):
    """The sample: 36 rows for 18 features, in sequences of one row each."""
    X, Y = task("last", n_sequences=WORTHWHILE * 36 - missing)
    assert (solve_exact(Rows.build(X, Y, Form("last"))) is None) == bool(missing)


def test_ridge_and_heads_need_the_sums():
    X, Y = task()
    assert pa.fit(X, Y, mode="causal", ridge=1e-3).solver == "primal"
    assert pa.fit(X, Y, mode="causal", ridge="gcv").solver == "primal"
    limited = pa.fit(X, Y, mode="causal", n_heads=2)
    assert limited.gap <= 1e-20


def test_named_solvers_and_estimators_keep_their_sums():
    X, Y = task("last", n_sequences=3000)
    assert pa.fit(X, Y).statistics is None
    assert pa.fit(X, Y, try_exact=False).statistics.n_rows == 3000
    assert pa.fit(X, Y, solver="primal").statistics.n_rows == 3000
    model = pa.LinearAttentionRegressor().fit(X[:2500], Y[:2500])
    model.partial_fit(X[2500:], Y[2500:] + 1.0)
    expected = pa.fit(X, np.concatenate([Y[:2500], Y[2500:] + 1.0]), solver="primal")
    np.testing.assert_allclose(model.result_.coef, expected.coef, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("mode", MODES)
def test_large_data_are_judged_in_portions(mode, monkeypatch):
    monkeypatch.setattr(exact, "PORTION_NUMBERS", 500)
    monkeypatch.setattr(exact, "BLOCK_NUMBERS", 1)
    monkeypatch.setattr(exact, "MIN_ROWS", 3)
    monkeypatch.setattr(rows, "SHARE_NUMBERS", 0)
    monkeypatch.setattr(rows, "SHARE_ROWS", 1)
    X, Y = task(mode)
    heard = []
    with listening(lambda done, total: heard.append((done, total))):
        assert pa.fit(X, Y, mode=mode).solver == "exact"
    n_rows = Y[..., 0].size
    assert heard[-1] == (n_rows, n_rows)
    Y[-1:] += 1e-3
    assert pa.fit(X, Y, mode=mode).solver == "primal"


def test_the_flag_is_checked():
    X, Y = task()
    with pytest.raises(TypeError, match="try_exact"):
        pa.fit(X, Y, mode="causal", try_exact="yes")
