"""The regressors: planted layers, streams, parameters as in ``polyattn.fit``."""

import numpy as np
import pytest
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score

import polyattn as pa
from estimator_cases import LENGTH, REGRESSOR, N, planted_numbers
from polyattn.errors import InvalidInput


def test_regressor_recovers_a_planted_layer():
    task = pa.data.planted(200, (2, 9), 4, n_heads=2, mode="full", random_state=5)
    model = REGRESSOR(mode="full").fit(task.X, task.Y)
    assert pa.same_function(model.layer_, task.layer)
    assert model.layer_.n_heads == 2
    assert model.score(task.X, task.Y) == pytest.approx(1.0)
    assert model.outcome_.name == "unique"
    assert model.n_outputs_ == 4


def test_regressor_score_is_r2_of_all_positions():
    X, Y = planted_numbers("causal", 2)
    model = REGRESSOR(mode="causal", ridge=3.0).fit(X, Y)
    weights = np.arange(N) + 1.0
    expected = r2_score(
        Y.reshape(-1, 2), model.predict(X).reshape(-1, 2), sample_weight=np.repeat(weights, LENGTH)
    )
    assert model.score(X, Y, sample_weight=weights) == pytest.approx(expected)


def test_regressor_forms_of_targets():
    X, y = planted_numbers("last")
    assert REGRESSOR().fit(X, y).predict(X).shape == (N,)
    assert REGRESSOR().fit(X, y[:, None]).predict(X).shape == (N, 1)
    assert REGRESSOR().fit(X, y.tolist()).predict(X).shape == (N,)
    X, y = planted_numbers("full")
    model = REGRESSOR(mode="full").fit(list(X), list(y))
    assert [p.shape for p in model.predict(list(X))] == [(LENGTH,)] * N
    assert model.predict(X).shape == (N, LENGTH)
    assert REGRESSOR(mode="full").fit(X, y[..., None]).predict(X).shape == (N, LENGTH, 1)


def test_cross_validation_of_ragged_sequences():
    task = pa.data.planted(60, (2, 8), 3, mode="causal", random_state=6)
    ragged, targets = list(task.X), task.Y
    model = REGRESSOR(mode="causal")
    for X in (ragged, task.X):
        assert np.allclose(cross_val_score(model, X, targets, cv=3), 1.0)
    search = GridSearchCV(model, {"ridge": [0.0, 1.0], "bias": [False, True]}, cv=3)
    assert search.fit(ragged, targets).best_params_["ridge"] == 0.0
    last = [layer_output[-1] for layer_output in targets]
    assert np.allclose(cross_val_score(REGRESSOR(), ragged, np.array(last), cv=3), 1.0)
    assert cross_val_predict(REGRESSOR(), ragged, np.array(last), cv=3).shape == (60, 3)


def test_parallel_cross_validation():
    X, y = planted_numbers("last")
    expected = cross_val_score(REGRESSOR(), X, y, cv=2)
    assert np.allclose(cross_val_score(REGRESSOR(), X, y, cv=2, n_jobs=2), expected)


def test_streaming_is_lazy_and_continues_after_fit():
    X, y = planted_numbers("last", 2)
    model = REGRESSOR().fit(X[:60], y[:60])
    first = model.result_
    rows = first.statistics.n_rows
    model.partial_fit(X[60:], y[60:])
    assert first.statistics.n_rows == rows == 60
    assert "result" not in vars(model._state)
    assert model.result_.statistics.n_rows == N
    assert np.allclose(model.coef_, REGRESSOR().fit(X, y).coef_)
    handed_out = model.result_
    model.partial_fit(X, y)
    assert handed_out.statistics.n_rows == N
    assert model.result_.statistics.n_rows == 2 * N


def test_parameters_count_from_the_call_that_saw_them():
    X, y = planted_numbers("last")
    model = REGRESSOR(ridge=1.0).partial_fit(X, y)
    model.set_params(ridge=0.0)
    assert model.result_.ridge == 1.0
    assert model.partial_fit(X, y).result_.ridge == 0.0


def test_streaming_by_triangular_factors_and_chosen_ridge():
    X, y = planted_numbers("last")
    expected = REGRESSOR().fit(X, y).coef_
    direct = REGRESSOR(solver="direct").partial_fit(X[:50], y[:50]).partial_fit(X[50:], y[50:])
    assert isinstance(direct.result_.statistics, pa.TriangularFactor)
    assert np.allclose(direct.coef_, expected)
    chosen = REGRESSOR(ridge="gcv").partial_fit(X[:50], y[:50]).partial_fit(X[50:], y[50:])
    assert chosen.result_.ridge == pytest.approx(REGRESSOR(ridge="gcv").fit(X, y).result_.ridge)
    heads = REGRESSOR(n_heads=1).partial_fit(X, y)
    assert heads.layer_.n_heads == 1
    assert heads.result_.gap >= 0


@pytest.mark.parametrize(
    ("parameters", "pattern"),
    [
        ({"ridge": "loo"}, "ridge='gcv'"),
        ({"solver": "dual"}, "'auto', 'primal' or 'direct'"),
        ({"solver": "iterative"}, "'auto', 'primal' or 'direct'"),
        ({"solver": "direct", "ridge": "gcv"}, "solver='primal'"),
    ],
)
def test_what_cannot_stream_is_refused_at_once(parameters, pattern):
    X, y = planted_numbers("last")
    with pytest.raises(InvalidInput, match=pattern):
        REGRESSOR(**parameters).partial_fit(X, y)


def test_what_cannot_continue_is_refused():
    X, y = planted_numbers("last")
    with pytest.raises(InvalidInput, match="'dual', which keeps no sums"):
        REGRESSOR(solver="dual").fit(X, y).set_params(solver="auto").partial_fit(X, y)
    model = REGRESSOR().partial_fit(X, y)
    with pytest.raises(InvalidInput, match="mode, bias, form or solver changed"):
        model.set_params(bias=True).partial_fit(X, y)
    model.set_params(bias=False)
    with pytest.raises(InvalidInput, match="3 coordinates; got 2"):
        model.partial_fit(X[..., :2], y)
    with pytest.raises(InvalidInput, match="1 output; got 2"):
        model.partial_fit(X, np.stack([y, y], axis=1))
    assert model.result_.statistics.n_rows == N


def test_the_ridge_is_chosen_from_the_grid():
    X, y = planted_numbers("last")
    model = pa.LinearAttentionRegressor(ridge="loo", ridge_grid=[3.0, 30.0]).fit(X, y)
    expected = pa.fit(X, y, ridge="loo", ridge_grid=[3.0, 30.0], try_exact=False)
    assert model.result_.ridge == expected.ridge in (3.0, 30.0)
    np.testing.assert_array_equal(model.result_.ridge_path.ridges, [3.0, 30.0])
    stream = pa.LinearAttentionRegressor(ridge="gcv", ridge_grid=[3.0, 30.0]).partial_fit(X, y)
    assert stream.result_.ridge in (3.0, 30.0)
    for wrong in ({"ridge": 1.0, "ridge_grid": [1.0]}, {"ridge": "gcv", "ridge_grid": [0.0, 1.0]}):
        with pytest.raises(InvalidInput, match="ridge_grid"):
            pa.LinearAttentionRegressor(**wrong).partial_fit(X, y)


@pytest.mark.parametrize(
    "given",
    [3, None, np.random.default_rng(0), np.random.RandomState(0)],
    ids=lambda given: type(given).__name__,
)
def test_random_numbers_come_from_anywhere(given):
    X, y = planted_numbers("last", 2)
    model = pa.LinearAttentionRegressor(n_heads=1, random_state=given).fit(X, y)
    assert isinstance(model.result_.random_state, int)
    assert model.layer_.n_heads == 1
    with pytest.raises(InvalidInput, match="random_state must be"):
        pa.LinearAttentionRegressor(random_state=-1).fit(X, y)


@pytest.mark.parametrize("kind", [pa.LinearAttentionRegressor, pa.SoftmaxAttentionRegressor])
def test_scores_refuse_another_number_of_outputs(kind):
    X, y = planted_numbers("last")
    model = kind(mode="last").fit(X, y)
    with pytest.raises(InvalidInput, match="1 output; got 2"):
        model.score(X, np.stack([y, y], axis=1))
