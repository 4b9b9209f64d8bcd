"""fit with a number of heads: as few as were planted, or the best of so many."""

import numpy as np
import pytest

import planted
import polyattn as pa
from fit_tasks import mean_power, noisy, objective, planted_layer, ragged, risk_of, rows_of
from polyattn.sequences import MODES


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("d", [4, 5, 8])
def test_the_planted_number_of_heads_is_found(d, mode, n_heads):
    truth = planted_layer(d, d, n_heads, mode)
    X = ragged(d, mode, seed=n_heads)
    result = pa.fit(X, truth(X), mode)
    assert result.layer.n_heads == n_heads
    assert pa.same_function(result.layer, truth, tolerance=1e-8)
    assert result.heads.lost < 1e-8
    assert str(n_heads) in result.heads.sentence


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("n_heads", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("d", "e"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3), (4, 1), (6, 2), (8, 1)]
)
def test_never_more_heads_than_planted(d, e, n_heads, seed):
    truth = planted_layer(d, e, n_heads, "causal", seed)
    X = ragged(d, "causal", seed=seed)
    layer = pa.fit(X, truth(X), "causal").layer
    assert 1 <= layer.n_heads <= min(n_heads, d * min(d, e))
    assert pa.same_function(layer, truth, tolerance=1e-8)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_heads", [1, 2, 3])
def test_a_sufficient_number_of_heads_costs_nothing(mode, n_heads):
    truth = planted_layer(4, 4, n_heads, mode)
    X = ragged(4, mode, seed=0)
    Y = truth(X)
    power = mean_power(Y)
    for allowed in (n_heads, n_heads + 1, 16):
        result = pa.fit(X, Y, mode, n_heads=allowed)
        assert result.layer.n_heads == allowed
        assert 0 <= result.gap < 1e-12 * power
        assert planted.relative_error(rows_of(result.predict(X)), rows_of(Y)) < 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_too_few_heads_have_a_gap_that_falls_with_their_number(mode):
    truth = planted_layer(3, 3, 3, mode)
    X = ragged(3, mode, seed=0)
    Y = noisy(truth(X), 0.1)
    results = [pa.fit(X, Y, mode, n_heads=h) for h in (1, 2, 3)]
    optimum = pa.fit(X, Y, mode)
    gaps = [result.gap for result in results]
    assert gaps[0] > gaps[1] > gaps[2] > 0
    for h, result in enumerate(results, 1):
        assert result.outcome.name == "limited_heads"
        assert result.layer.n_heads == h
        assert result.optimal_risk == pytest.approx(optimum.risk, rel=1e-9)
        assert result.risk == pytest.approx(risk_of(result.layer(X), Y), rel=1e-6)
        assert result.risk == pytest.approx(risk_of(result.predict(X), Y), rel=1e-6)


@pytest.mark.parametrize(("n_heads", "seed"), [(1, 0), (2, 1), (3, 0)])
def test_noise_does_not_hide_the_number_of_heads(n_heads, seed):
    task = pa.data.planted(400, 12, 4, n_heads=n_heads, noise=0.01, random_state=seed)
    result = pa.fit(task.X, task.Y, "causal", n_heads="auto", random_state=seed)
    assert result.layer.n_heads == n_heads
    # Fewer parameters, less noise: closer to the truth than the optimum over all layers.
    optimum = pa.fit(task.X, task.Y, "causal")
    assert pa.coefficient_distance(result.layer, task.layer) < np.linalg.norm(
        optimum.coef - task.layer.coef
    )


@pytest.mark.parametrize("source", ["moments", "factor"])
def test_limited_heads_from_statistics(source):
    truth = planted_layer(4, 4, 2, "last")
    X = ragged(4, "last", seed=0)
    Y = noisy(truth(X), 0.1)
    make = pa.Moments if source == "moments" else pa.TriangularFactor
    streamed = pa.fit(statistics=make(4, 4).update(X, Y), n_heads=2)
    whole = pa.fit(X, Y, n_heads=2)
    assert streamed.risk == pytest.approx(whole.risk, rel=1e-6)
    assert streamed.layer.n_heads == 2


@pytest.mark.parametrize("solver", ["auto", "dual", "iterative"])
@pytest.mark.parametrize("kind", planted.KINDS)
def test_limited_heads_on_any_data(kind, solver):
    """Few rows, flat, Boolean and one-hot tokens: the moments that weigh the heads are singular."""
    task = planted.problem(kind, "causal", noise=0.5)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, len(task.X))
    best = pa.fit(task.X, task.Y, "causal", solver=solver, sample_weight=weights)
    for n_heads in (1, 3):
        result = pa.fit(
            task.X, task.Y, "causal", n_heads=n_heads, solver=solver, sample_weight=weights
        )
        errors = np.sum((result.layer(task.X) - task.Y) ** 2, axis=2).mean(axis=1)
        measured = np.average(errors, weights=weights)
        assert result.layer.n_heads == n_heads
        assert result.risk == pytest.approx(measured, rel=1e-6, abs=1e-9 * mean_power(task.Y))
        assert result.optimal_risk == pytest.approx(best.risk, rel=1e-9, abs=1e-15)
        assert result.gap >= 0


def test_the_number_of_heads_without_noise():
    truth = planted_layer(4, 4, 2, "last")
    X = ragged(4, "last", seed=0)
    result = pa.fit(X, truth(X), n_heads="auto")
    assert result.layer.n_heads == 2
    assert pa.same_function(result.layer, truth, tolerance=1e-6)


def test_the_data_choose_no_worse_layer_than_the_same_number_of_heads():
    task = pa.data.planted(
        200, 12, 3, n_heads=2, n_outputs=2, noise=0.02, mode="last", random_state=1
    )
    chosen = pa.fit(task.X, task.Y, n_heads="auto")
    given = pa.fit(task.X, task.Y, n_heads=2)
    assert chosen.heads.n_heads == 2
    assert 0 < chosen.gap <= given.gap
    assert f"grows by {chosen.heads.risk_gap:.3g}," in chosen.heads.sentence


def test_without_spare_rows_the_noise_is_unknown_and_the_function_kept():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((4, 4, 2)), rng.standard_normal((4, 2))
    result = pa.fit(X, Y, n_heads="auto")
    assert "no estimate of the noise" in result.heads.sentence
    assert planted.relative_error(result.coef, pa.fit(X, Y).coef) < 1e-9


@pytest.mark.parametrize("ridge", [0.1, 10.0])
def test_limited_heads_with_a_ridge(ridge):
    """The risk excludes the penalty; the penalised objective is what cannot be beaten."""
    truth = planted_layer(3, 3, 2, "last")
    X = ragged(3, "last", seed=0)
    Y = noisy(truth(X), 0.5)
    limited, best = pa.fit(X, Y, ridge=ridge, n_heads=1), pa.fit(X, Y, ridge=ridge)
    assert limited.risk == pytest.approx(risk_of(limited.layer(X), Y), rel=1e-6)
    assert objective(limited.coef, X, Y, ridge) > objective(best.coef, X, Y, ridge)
    assert limited.optimal_risk == pytest.approx(best.risk)


def test_heads_that_are_not_needed_are_zero_and_the_outcome_says_so():
    task = pa.data.planted(256, 10, 3, random_state=0)
    found = pa.fit(task.X, task.Y, mode="causal", n_heads=12)
    assert found.layer.n_heads == 12
    assert np.count_nonzero(found.layer.value.any(axis=(1, 2))) == 9
    assert "12 heads" in found.outcome.sentence
    assert "It needs 9 of them; the others are zero." in found.outcome.sentence
    fewer = pa.fit(task.X, task.Y, mode="causal", n_heads=9)
    assert "zero" not in fewer.outcome.sentence
