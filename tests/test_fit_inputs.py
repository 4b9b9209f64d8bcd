"""fit: what goes in and comes out – weights, kinds of sequences, seeds, frozen results."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import planted
import polyattn as pa
from fit_tasks import (
    noisy,
    planted_layer,
    ragged,
    rows_of,
)
from planted import EPS
from polyattn.errors import InvalidInput
from polyattn.sequences import MODES, SequenceBatch

SOLVERS = ("primal", "dual", "direct", "iterative")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_risk_is_the_risk(solver, mode, bias, weighted):
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((1 + i % 5, 2)) for i in range(60)]
    Y = [rng.standard_normal((1 if mode == "last" else len(x), 2)) for x in X]
    weights = rng.uniform(0, 2, 60) if weighted else None
    targets = np.concatenate(Y) if mode == "last" else Y
    for ridge in (0.0, 1.0):
        result = pa.fit(X, targets, mode, ridge, None, solver, bias, weights)
        each = np.ones(60) if weights is None else weights
        row_weights = np.repeat(each, [len(y) for y in Y])
        # All solvers find the same coefficients: heads are searched for once, without weights.
        once = solver == "primal" and not weighted
        for outputs in (result.predict(X), *([result.layer(X)] if once else [])):
            errors = np.sum((rows_of(outputs) - np.concatenate(Y)) ** 2, axis=1)
            assert result.risk == pytest.approx(np.average(errors, weights=row_weights), rel=1e-9)
        assert result.optimal_risk == result.risk
        assert result.gap == 0


@pytest.mark.parametrize("n_sequences", [4, 40])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("solver", ["primal", "dual", "direct"])
def test_weights_count_like_repetitions(solver, mode, n_sequences):
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((1 + i % 3, 2)) for i in range(n_sequences)]
    Y = [rng.standard_normal((1 if mode == "last" else len(x), 2)) for x in X]
    weights = rng.integers(0, 4, n_sequences)
    again = [i for i, weight in enumerate(weights) for _ in range(weight)]
    in_form = np.concatenate if mode == "last" else list
    for ridge in (0.0, 0.5):
        one = pa.fit(X, in_form(Y), mode, ridge, sample_weight=weights, solver=solver)
        other = pa.fit(
            [X[i] for i in again], in_form([Y[i] for i in again]), mode, ridge, solver=solver
        )
        # The kernel of few rows squares their condition number.
        tolerance = max(1e-9, 100 * EPS * other.condition**2) if solver == "dual" else 1e-9
        assert planted.relative_error(one.coef, other.coef) < tolerance
        assert one.risk == pytest.approx(other.risk, rel=1e-9, abs=1e-15)
        assert one.outcome.name == other.outcome.name
        assert one.rank == other.rank


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_predictions_have_the_form_of_the_input(mode, n_outputs):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4, 2))
    Y = rng.standard_normal((30, n_outputs) if mode == "last" else (30, 4, n_outputs))
    result = pa.fit(X, Y, mode)
    shape = (30, n_outputs) if mode == "last" else (30, 4, n_outputs)
    expected = result.predict(X)
    assert expected.shape == shape
    assert result.predict(X[5]).shape == shape[1:]
    np.testing.assert_allclose(result.predict(X[5]), expected[5], rtol=1e-12, atol=1e-13)
    batch = SequenceBatch.from_sequences(list(X))
    for form in (list(X), tuple(X), batch):
        outputs = result.predict(form)
        assert isinstance(outputs, np.ndarray if mode == "last" else list)
        np.testing.assert_allclose(np.stack(outputs), expected, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(np.stack(result.layer(form)), expected, rtol=1e-6, atol=1e-7)
    lengths = (1, 3, 2)
    outputs = result.predict([x[:n] for x, n in zip(X, lengths, strict=False)])
    if mode == "last":
        assert outputs.shape == (3, n_outputs)
    else:
        assert [y.shape for y in outputs] == [(n, n_outputs) for n in lengths]


@pytest.mark.parametrize("mode", MODES)
def test_all_forms_of_input_are_one(mode):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4, 2))
    Y = rng.standard_normal((30,) if mode == "last" else (30, 4))
    expected = pa.fit(X, Y, mode).coef
    offsets = np.arange(31) * 4
    padded = np.concatenate([X, np.full((30, 2, 2), np.nan)], axis=1)
    for form in (
        list(X), X.tolist(), np.asfortranarray(X), SequenceBatch(X.reshape(-1, 2), offsets),
        SequenceBatch.from_padded(padded, np.full(30, 4)),
    ):  # fmt: skip
        np.testing.assert_allclose(pa.fit(form, Y, mode).coef, expected, rtol=1e-10, atol=1e-14)
    for form in (Y[..., None], Y.tolist() if mode == "last" else list(Y), np.asfortranarray(Y)):
        np.testing.assert_allclose(pa.fit(X, form, mode).coef, expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_inputs_are_never_modified(solver, mode):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4, 2))
    Y = rng.standard_normal((30, 2) if mode == "last" else (30, 4, 2))
    weights, grid = rng.uniform(0, 1, 30), np.array([3.0, 1.0])
    arrays = (X, Y, weights, grid)
    before = [array.copy() for array in arrays]
    for array in arrays:
        array.setflags(write=False)
    result = pa.fit(X, Y, mode, "loo", 1, solver, True, weights, ridge_grid=grid)
    result.predict(X)
    result.layer(X)
    for array, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_the_same_seed_gives_the_same_result():
    truth = planted_layer(2, 2, 2, "last")
    X = ragged(2, "last", seed=0)
    Y = noisy(truth(X), 0.1)
    for n_heads in (None, 2):
        one, other = (pa.fit(X, Y, n_heads=n_heads, random_state=7) for _ in range(2))
        np.testing.assert_array_equal(one.coef, other.coef)
        assert one.layer == other.layer
        assert one.outcome == other.outcome
    # The optimum itself needs no seed.
    np.testing.assert_array_equal(
        pa.fit(X, Y, random_state=1).coef, pa.fit(X, Y, random_state=2).coef
    )


def test_the_result_keeps_the_seed_whatever_it_came_from():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 4, 2)), rng.standard_normal((30, 2))
    for random_state in (np.int64(7), np.random.default_rng(3), None):
        result = pa.fit(X, Y, n_heads=1, random_state=random_state)
        again = pa.fit(X, Y, n_heads=1, random_state=result.random_state)
        assert type(result.random_state) is int
        np.testing.assert_array_equal(result.coef, again.coef)
    seeds = [pa.fit(X, Y, random_state=rng).random_state for _ in range(2)]
    assert seeds[0] != seeds[1]  # a generator advances
    for wrong in (-1, 1.5, True, "seed"):
        with pytest.raises(InvalidInput, match="random_state must be"):
            pa.fit(X, Y, random_state=wrong)


def test_results_are_frozen():
    rng = np.random.default_rng(0)
    result = pa.fit(rng.standard_normal((30, 4, 2)), rng.standard_normal((30, 2)))
    for name in ("coef", "risk", "outcome", "statistics", "ridge"):
        with pytest.raises(FrozenInstanceError):
            setattr(result, name, None)
    with pytest.raises(FrozenInstanceError):
        result.outcome.name = "perfect"
    for array in (result.coef, result.layer.attn, result.layer.value, result.layer.coef):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0.0


def test_results_of_statistics_carry_their_mode():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 4, 2)), rng.standard_normal((30, 4, 2))
    result = pa.fit(statistics=pa.Moments(2, 2, "causal", bias=True).update(X, Y))
    assert (result.mode, result.bias, result.n_dims, result.layer.mode) == (
        "causal", True, 2, "causal",
    )  # fmt: skip
    np.testing.assert_allclose(result.coef, pa.fit(X, Y, "causal", bias=True).coef, rtol=1e-8)
