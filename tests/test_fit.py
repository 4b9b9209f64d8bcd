"""fit: planted layers come back, the optimum is the optimum, and the result says what it is."""

# ruff: noqa: E501 - a table reads best with one outcome per line

import numpy as np
import pytest

import planted
import polyattn as pa
from fit_tasks import assert_same_on_fresh_data, descend, planted_layer, predict_by, ragged, risk_of
from polyattn.sequences import MODES

SOLVERS = ("primal", "dual", "direct", "iterative")


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
    exact = ("unique", "regularised", "iterative")
    assert result.outcome.ok == (name in exact or case == "limited heads")
    text = str(result.outcome)
    for word in words:
        assert word.replace("\\", "") in text, (word, text)
    assert text.endswith(".")
    assert name in repr(result)
    assert repr(result).startswith("FitResult(2 -> 2, mode 'last', risk ")
    assert "\n" not in repr(result)
    assert len(repr(result)) < 120
