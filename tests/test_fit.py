"""fit: planted layers come back, the optimum is the optimum, and the result says what it is."""

# ruff: noqa: E501 - a table reads best with one outcome per line

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import planted
import polyattn as pa
from planted import EPS
from polyattn.errors import InvalidInput
from polyattn.form.pairs import n_features
from polyattn.sequences import MODES, SequenceBatch

SOLVERS = ("primal", "dual", "direct", "iterative")


# Planted layers -----------------------------------------------------------------------------


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("outputs", ["one", "all"])
@pytest.mark.parametrize("d", [1, 2, 3, 4, 6, 8])
def test_planted_layers_are_the_same_function_on_fresh_data(d, outputs, mode, n_heads):
    truth = planted_layer(d, 1 if outputs == "one" else d, n_heads, mode)
    X = ragged(d, mode, seed=n_heads)
    result = pa.fit(X, truth(X), mode)
    assert_same_on_fresh_data(result, truth)


@pytest.mark.parametrize(("mode", "n_heads"), [("last", 1), ("causal", 4), ("full", 2)])
def test_planted_layers_of_width_16(mode, n_heads):
    truth = planted_layer(16, 16 if mode == "causal" else 1, n_heads, mode)
    X = ragged(16, mode, seed=n_heads)
    assert_same_on_fresh_data(pa.fit(X, truth(X), mode), truth)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("d", [1, 3])
def test_planted_layers_with_a_constant(mode, d):
    rng = np.random.default_rng(0)
    truth = pa.LinearAttention(
        rng.standard_normal((2, d + 1, d + 1)), rng.standard_normal((2, d + 1, 2)), mode, bias=True
    )
    X = ragged(d + 1, mode, seed=1, drop=1)
    result = pa.fit(X, truth(X), mode, bias=True)
    # The constant three times: G[-1,-1] is the length, so lengths must vary to tell it.
    assert_same_on_fresh_data(result, truth, drop=1)
    assert result.layer.bias
    assert pa.same_function(result.layer, truth)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_planted_layers_on_every_solver(solver, mode):
    truth = planted_layer(3, 3, 2, mode)
    X = ragged(3, mode, seed=0)
    result = pa.fit(X, truth(X), mode, solver=solver)
    assert result.solver == solver
    assert planted.relative_error(result.coef, truth.coef) < 1e-9


# The number of heads ------------------------------------------------------------------------


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


@pytest.mark.parametrize("seed", range(2))
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
    truth = planted_layer(4, 4, 4, mode)
    X = ragged(4, mode, seed=0)
    Y = noisy(truth(X), 0.1)
    results = [pa.fit(X, Y, mode, n_heads=h) for h in (1, 2, 3, 4)]
    optimum = pa.fit(X, Y, mode)
    gaps = [result.gap for result in results]
    assert gaps[0] > gaps[1] > gaps[2] > gaps[3] > 0
    for h, result in enumerate(results, 1):
        assert result.outcome.name == "limited_heads"
        assert result.layer.n_heads == h
        assert result.optimal_risk == pytest.approx(optimum.risk, rel=1e-9)
        assert result.risk == pytest.approx(risk_of(result.layer(X), Y), rel=1e-6)
        assert result.risk == pytest.approx(risk_of(result.predict(X), Y), rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_heads", [1, 2, 3])
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


def test_without_spare_rows_the_noise_is_unknown_and_the_function_kept():
    result = pa.fit(X[:4], Y[:4], n_heads="auto")
    assert "no estimate of the noise" in result.heads.sentence
    assert planted.relative_error(result.coef, pa.fit(X[:4], Y[:4]).coef) < 1e-9


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


# The optimum is the optimum -----------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_nothing_near_the_optimum_is_better(mode):
    """Random steps in coefficient space, of every size, only raise the risk."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 4, 2))
    Y = rng.standard_normal((40, 2) if mode == "last" else (40, 4, 2))
    result = pa.fit(X, Y, mode)
    for size in 10.0 ** np.arange(-6, 3):
        step = size * rng.standard_normal(result.coef.shape)
        other = risk_of(predict_by(result.coef + step, X, mode), Y)
        assert other > result.risk


@pytest.mark.parametrize("n_heads", [1, 2, 4])
@pytest.mark.parametrize("mode", ["last", "causal"])
def test_no_gradient_run_gets_below_the_closed_form(mode, n_heads):
    """Pure noise, torch LBFGS and Adam from several starts; with d^2 heads they come close."""
    torch = pytest.importorskip("torch", reason="the rivals are written in torch")
    rng = np.random.default_rng(1)
    d = 2
    X = rng.standard_normal((50, 5, d))
    Y = rng.standard_normal((50, d) if mode == "last" else (50, 5, d))
    optimum = pa.fit(X, Y, mode).risk
    limited = pa.fit(X, Y, mode, n_heads=n_heads)
    reached = [
        descend(torch, X, Y, mode, n_heads, method, seed)
        for method in ("lbfgs", "adam")
        for seed in range(3)
    ]
    assert min(reached) > optimum * (1 - 1e-9)
    # The rivals are strong: enough heads reach the bound, fewer reach the best we found.
    assert min(reached) < limited.risk * 1.02
    assert limited.risk < min(reached) * (1 + 1e-3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize("n_sequences", [5, 60])
def test_rotating_the_tokens_changes_nothing(mode, ridge, n_sequences):
    """||T||_F does not see rotations, so neither does the minimiser: wide, tall and penalised."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_sequences, 3, 3))
    Y = rng.standard_normal((n_sequences, 2) if mode == "last" else (n_sequences, 3, 2))
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    fresh = rng.standard_normal((9, 4, 3))
    plain, turned = pa.fit(X, Y, mode, ridge), pa.fit(X @ rotation, Y, mode, ridge)
    assert planted.relative_error(turned.predict(fresh @ rotation), plain.predict(fresh)) < 1e-9
    assert turned.risk == pytest.approx(plain.risk, rel=1e-9, abs=1e-20)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_sequences", [5, 60])
def test_outputs_are_fitted_independently_and_linearly(mode, n_sequences):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_sequences, 3, 2))
    Y = rng.standard_normal((n_sequences, 3) if mode == "last" else (n_sequences, 3, 3))
    mix = rng.standard_normal((3, 2))
    whole = pa.fit(X, Y, mode, 0.1)
    for a in range(3):
        single = pa.fit(X, Y[..., a], mode, 0.1)
        assert planted.relative_error(single.coef[0], whole.coef[a]) < 1e-11
    mixed = pa.fit(X, Y @ mix, mode, 0.1)
    assert planted.relative_error(mixed.coef, np.einsum("aql,ab->bql", whole.coef, mix)) < 1e-11


@pytest.mark.parametrize("mode", MODES)
def test_the_order_of_sequences_does_not_matter(mode):
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((1 + i % 4, 2)) for i in range(40)]
    Y = [rng.standard_normal((1 if mode == "last" else len(x), 2)) for x in X]
    order = rng.permutation(40)
    in_form = np.concatenate if mode == "last" else list
    one = pa.fit(X, in_form(Y), mode)
    other = pa.fit([X[i] for i in order], in_form([Y[i] for i in order]), mode)
    assert planted.relative_error(other.coef, one.coef) < 1e-11


# Risk and weights ---------------------------------------------------------------------------


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
        for outputs in (result.predict(X), result.layer(X)):
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


# Forms of input and output ------------------------------------------------------------------


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
    truth = planted_layer(4, 4, 2, "last")
    X = ragged(4, "last", seed=0)
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


# Outcomes -----------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((30, 4, 2)), RNG.standard_normal((30, 2))

OUTCOMES = {
    # name, call, words of the sentence and of what to do next
    "unique": ("unique", lambda: pa.fit(X, Y), "unique global optimum", "any number of heads", "all 6 coefficients", "condition number"),
    "few rows": ("minimum_norm", lambda: pa.fit(X[:4], Y[:4]), "not unique", "rank 4 of 6", "4 predicted positions for 6", "smallest norm", "add data", "ridge"),
    "flat tokens": ("minimum_norm", lambda: pa.fit(X * [1, 0], Y), "not unique", "rank 1 of 6", "never occur", "number 1 of the query is always 0"),
    "moments alone": ("minimum_norm", lambda: pa.fit(statistics=pa.Moments(2, 2).update(X * [1, 0], Y)), "rank 1 of 6", "never occur"),
    "regularised": ("regularised", lambda: pa.fit(X, Y, ridge=0.5), "unique minimiser", r"0.5 \|\|T\|\|", "ridge='loo'"),
    "loo": ("regularised", lambda: pa.fit(X, Y, ridge="loo"), "unique minimiser"),
    "iterative": ("iterative", lambda: pa.fit(X, Y, solver="iterative"), "approached iteratively", "passes", "not proved"),
    "limited heads": ("limited_heads", lambda: pa.fit(X, Y, n_heads=1), "1 head", "no layer can beat", "gap", "unique global optimum"),
    "limited heads, few rows": ("limited_heads", lambda: pa.fit(X[:4], Y[:4], n_heads=1), "1 head", "gap", "not unique"),
    "ill conditioned": ("unique", lambda: pa.fit(X @ [[1, 1], [0, 1e-4]], Y), "condition number", "sensitive to noise", "ridge"),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTCOMES)
def test_outcomes_are_sentences(case):
    name, call, *words = OUTCOMES[case]
    result = call()
    assert isinstance(result.outcome, pa.Outcome)
    assert result.outcome.name == name
    assert result.outcome.ok == (name in ("unique", "regularised") or case == "limited heads")
    text = str(result.outcome)
    for word in words:
        assert word.replace("\\", "") in text, (word, text)
    assert text.endswith(".")
    assert name in repr(result)
    assert repr(result).startswith("FitResult(2 -> 2, mode 'last', risk ")
    assert "\n" not in repr(result)
    assert len(repr(result)) < 120


# Helpers ------------------------------------------------------------------------------------


def planted_layer(d, e, n_heads, mode, seed=0):
    """A random layer with parameters of order one."""
    rng = np.random.default_rng([seed, d, e, n_heads])
    attn, value = rng.standard_normal((n_heads, d, d)), rng.standard_normal((n_heads, d, e))
    return pa.LinearAttention(attn / d, value / d, mode)


def ragged(d, mode, seed, drop=0):
    """Sequences of 1 to 2 d + 3 tokens, twice as many rows as features (``drop`` coordinates)."""
    rng = np.random.default_rng([seed, d])
    wanted = 2 * n_features(d) + 10
    sequences, rows = [], 0
    while rows < wanted:
        length = int(rng.integers(1, 2 * d + 4))
        sequences.append(rng.standard_normal((length, d - drop)))
        # Queries beyond d span no more when they share their Gram.
        rows += {"last": 1, "causal": length, "full": min(length, d)}[mode]
    return sequences


def assert_same_on_fresh_data(result, truth, drop=0):
    """Equal outputs to 1e-9 on sequences that were never seen, which the condition allows."""
    assert result.outcome.name == "unique"
    assert result.condition * EPS * result.n_features < 1e-9
    width = truth.n_dims + drop
    fresh = ragged(width, "last", seed=99, drop=drop)[:50]
    assert planted.relative_error(rows_of(result.predict(fresh)), rows_of(truth(fresh))) < 1e-9
    assert planted.relative_error(result.coef, truth.coef) < 1e-9


def rows_of(outputs):
    """Outputs of any form as (rows, e)."""
    parts = [np.reshape(part, (-1, np.shape(part)[-1])) for part in outputs]
    return np.concatenate(parts)


def mean_power(Y):
    return float(np.mean(np.sum(rows_of(Y) ** 2, axis=1)))


def risk_of(outputs, Y):
    """The mean over rows of the squared error."""
    return float(np.mean(np.sum((rows_of(outputs) - rows_of(Y)) ** 2, axis=1)))


def noisy(Y, noise):
    """Targets with normal noise, in the form of Y."""
    rng = np.random.default_rng(5)
    if isinstance(Y, list):
        return [y + noise * rng.standard_normal(y.shape) for y in Y]
    return Y + noise * rng.standard_normal(Y.shape)


def predict_by(coef, X, mode):
    """Outputs of coefficients, by the reference."""
    from polyattn.reference import erm

    return erm.predict(coef, list(X), mode)


def objective(coef, X, Y, ridge):
    """sum ||y - F(X)||^2 + ridge ||T||_F^2, by the reference."""
    from polyattn.reference import features

    squares = np.sum((rows_of(Y) - predict_by(coef, X, "last")) ** 2)
    return float(squares + ridge * np.sum(features.unfold(coef) ** 2))


def descend(torch, X, Y, mode, n_heads, method, seed):
    """The risk that a torch optimiser reaches over layers with ``n_heads`` heads."""
    generator = torch.Generator().manual_seed(seed)
    X, Y = torch.as_tensor(X), torch.as_tensor(Y)
    d, e = X.shape[-1], Y.shape[-1]
    make = {"generator": generator, "dtype": torch.float64}
    attn = (0.5 * torch.randn(n_heads, d, d, **make)).requires_grad_()
    value = (0.5 * torch.randn(n_heads, d, e, **make)).requires_grad_()
    mask = torch.tril(torch.ones(X.shape[1], X.shape[1], dtype=torch.float64))

    def loss():
        scores = torch.einsum("ntl,hlk,nsk->nhts", X, attn, X)
        scores = scores * mask if mode == "causal" else scores
        outputs = torch.einsum("nhts,nsj,hja->nta", scores, X, value)
        outputs = outputs[:, -1] if mode == "last" else outputs
        return ((outputs - Y) ** 2).sum(-1).mean()

    def closure():
        optimiser.zero_grad()
        value_now = loss()
        value_now.backward()
        return value_now

    if method == "lbfgs":
        optimiser = torch.optim.LBFGS(
            [attn, value], max_iter=500, line_search_fn="strong_wolfe", tolerance_change=1e-14
        )
        optimiser.step(closure)
    else:
        optimiser = torch.optim.Adam([attn, value], lr=0.01)
        for _ in range(400):
            optimiser.step(closure)
    return float(loss().detach())


def _awkward_task(seed):
    """Coordinates of units from 1e-5 to 1e5, some nearly dependent, with and without noise."""
    rng = np.random.default_rng(seed)
    n_dims, n_tokens = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    mode, bias = str(rng.choice(["last", "causal", "full"])), bool(rng.integers(2))
    X = rng.standard_normal((int(rng.integers(2, 150)), n_tokens, n_dims))
    X *= 10.0 ** rng.uniform(-3, 3, n_dims) * 10.0 ** rng.uniform(-2, 2)
    if rng.random() < 0.4 and n_dims > 1:
        X[..., -1] = X[..., 0] + 10.0 ** rng.uniform(-10, 0) * X[..., -1]
    width = n_dims + bias
    value = rng.standard_normal((2, width, 2)) * 10.0 ** rng.uniform(-3, 3)
    layer = pa.LinearAttention(rng.standard_normal((2, width, width)), value, mode, bias)
    Y = layer(X)
    noise = rng.choice([0.0, 1e-12, 1e-6, 0.1, 10.0]) * np.std(Y)
    return X, Y + noise * rng.standard_normal(Y.shape), mode, bias


@pytest.mark.parametrize("seed", range(120))
def test_the_optimum_is_reached_whatever_the_units(seed):
    """The judge is the auditor's own minimiser, which shares no solver with ``fit``."""
    X, Y, mode, bias = _awkward_task(seed)
    audit = pa.audit(pa.fit(X, Y, mode, bias=bias), X, Y)
    assert audit.gap <= audit.rounding
    assert audit.consistent


def test_the_minimum_norm_never_costs_residual():
    """A singular value just below rounding: its vector must not be used to shorten the layer."""
    rng = np.random.default_rng(19)
    X = rng.standard_normal((72, 5, 3)) * [3e3, 1e-2, 1.0]
    X[..., 2] = X[..., 0] + 2e-5 * 3e3 * X[..., 2]
    Y = pa.data.random_layer(3, n_outputs=1, random_state=0)(X)
    Y = Y + 0.1 * np.std(Y) * rng.standard_normal(Y.shape)
    audit = pa.audit(pa.fit(X, Y, "causal"), X, Y)
    assert audit.gap <= 1e-3 * audit.optimal_risk


def test_heads_that_are_not_needed_are_zero_and_the_outcome_says_so():
    task = pa.data.planted(256, 10, 3, random_state=0)
    found = pa.fit(task.X, task.Y, mode="causal", n_heads=12)
    assert found.layer.n_heads == 12
    assert np.count_nonzero(found.layer.value.any(axis=(1, 2))) == 9
    assert "12 heads" in found.outcome.sentence
    assert "It needs 9 of them; the others are zero." in found.outcome.sentence
    fewer = pa.fit(task.X, task.Y, mode="causal", n_heads=9)
    assert "zero" not in fewer.outcome.sentence
