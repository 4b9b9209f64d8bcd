"""result.generalisation: promises on fresh sequences are kept, and refused where they cannot be."""

import importlib
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.fitting import training_data
from polyattn.fitting.generalisation import generalisation_of
from polyattn.solve.sequence_influence import influence_of

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def simulation():
    """The script that judges promises on populations whose best layer is known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module("generalisation")


def noisy(N=200, n=5, d=2, e=1, mode="last", seed=6):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, n, d))
    layer = pa.data.random_layer(d, mode=mode, random_state=1)
    Y = layer(X)[..., :e]
    return X, Y + rng.standard_normal(Y.shape)


# ---- what is computed, against fits without each sequence


def dense(X, Y, mode, weights):
    """Features and targets of each sequence, times the roots of their weights."""
    populations = importlib.import_module("_populations")
    psi = populations.features(X, mode)
    roots = np.sqrt(weights)[:, None, None]
    return psi * roots, Y.reshape(*psi.shape[:2], -1) * roots


def by_refits(psi, Y, coef):
    """The same figures from least squares without each sequence, and dense matrices."""
    flat, targets = psi.reshape(-1, psi.shape[2]), Y.reshape(-1, Y.shape[2])
    theta = np.linalg.lstsq(flat, targets, rcond=None)[0]
    root = np.linalg.inv(np.linalg.cholesky(flat.T @ flat)).T
    rows = []
    W, M = 0.0, 0.0
    for i in range(len(psi)):
        others = np.arange(len(psi)) != i
        left = np.linalg.lstsq(
            psi[others].reshape(-1, flat.shape[1]),
            Y[others].reshape(-1, Y.shape[2]), rcond=None,
        )[0]  # fmt: skip
        Q = psi[i] @ root
        rest = np.eye(len(Q)) - Q @ Q.T
        values, vectors = np.linalg.eigh(rest)
        half = vectors / np.sqrt(values) @ vectors.T
        residual = Y[i] - psi[i] @ theta
        g = (Q.T @ half @ residual).ravel(order="F")
        seen = np.linalg.solve(rest, Q)
        W, M = W + seen.T @ seen, M + np.outer(g, g)
        away = np.linalg.solve(rest, psi[i] @ (coef - theta))
        rows.append((1 - values[0], np.sum((Y[i] - psi[i] @ left) ** 2), np.sum(residual**2),
                     np.sum((Y[i] - psi[i] @ coef) ** 2), np.sum(away**2), g, seen))  # fmt: skip
    large = np.kron(np.eye(Y.shape[2]), W)
    together = sum(
        M[a : a + len(W), a : a + len(W)] for a in range(0, len(M), len(W))
    )  # fmt: skip
    noise = [g @ large @ g for *_, g, _ in rows]
    norm = [np.trace(seen @ together @ seen.T) for *_, seen in rows]
    columns = [np.array(each) for each in list(zip(*rows, strict=True))[:5]]
    spectrum = np.linalg.eigvals(large @ M).real
    return *columns, np.array(noise), np.array(norm), spectrum.sum() ** 2 / np.sum(spectrum**2)


@pytest.mark.parametrize(("mode", "e"), [("last", 1), ("last", 2), ("causal", 1), ("causal", 2)])
def test_influence_is_that_of_fits_without_each_sequence(simulation, mode, e):
    assert simulation is not None
    X, Y = noisy(30, 4, 2, e, "last" if mode == "last" else "causal")
    weights = np.random.default_rng(1).integers(1, 4, 30).astype(float)
    result = pa.fit(X, Y, mode, ridge=2.0, sample_weight=weights)
    rows = result.training
    scale = 2.0 ** (rows.target_exponent or 0)
    theta = result.layout.as_theta(np.ldexp(result.coef, 3 * rows.token_exponent) / scale)
    found = influence_of(rows, theta)
    psi, targets = dense(X, Y, mode, weights)
    coef = result.coef.reshape(e, -1).T
    leverage, left_out, fitted, own, apart, noise, norm, freedom = by_refits(psi, targets, coef)
    np.testing.assert_allclose(found.leverage, leverage, rtol=1e-8)
    for name, wanted in (
        ("left_out", left_out), ("fitted", fitted), ("own", own), ("apart", apart),
        ("noise", noise), ("norm", norm),
    ):  # fmt: skip
        np.testing.assert_allclose(getattr(found, name) * scale**2, wanted, rtol=1e-7)
    # Of several outputs a bound of it.
    assert found.freedom == pytest.approx(freedom, rel=1e-7) if e == 1 else found.freedom < freedom
    assert found.rank == psi.shape[2]


# ---- promises are kept


@pytest.mark.parametrize("index", [3, 7, 27])
def test_promises_are_kept_on_fresh_sequences(simulation, index):
    cell = simulation.CELLS[index]
    row = simulation.judge(cell, 30)
    # Of 30, at most 1.5 are expected: more than 6 have a probability below 1e-3.
    assert row.exceeded <= 6 / 30
    assert row.risk_exceeded <= 6 / 30
    assert row.promised > 0.4
    assert not cell.informative or row.ratio < 10.0


@pytest.mark.slow
def test_promises_are_kept_in_all_cells(simulation):
    assert len(simulation.CELLS) >= 20
    for cell in simulation.CELLS:
        row = simulation.judge(cell, 500)
        assert row.exceeded <= 0.05, str(cell)
        assert row.risk_exceeded <= 0.05, str(cell)
        assert not cell.informative or row.ratio < 10.0, str(cell)


def test_what_was_never_seen_breaks_any_promise(simulation):
    """Negative control, and why "tails" is a condition: large sequences, one in a hundred."""
    row = simulation.judge(simulation.UNSEEN[1], 40)
    assert row.exceeded > 0.5 * row.promised > 0


def test_the_mean_excess_is_a_bound_of_the_mean(simulation):
    """Left out minus fitted is on average at least the excess of fits to one sequence fewer."""
    population = simulation.Population("uniform", 1, 3, "even")
    rng = np.random.default_rng(3)
    bounds, truths = [], []
    for _ in range(150):
        X, Y = population.draw(rng, 12)
        bounds.append(pa.fit(X, Y).generalisation().mean_excess)
        truths.append(population.excess(pa.fit(X[1:], Y[1:]).coef))
    assert np.mean(bounds) > np.mean(truths)
    # It is about twice as large: a third of it would be too small.
    assert np.mean(bounds) / 3 < np.mean(truths)


# ---- nothing is promised where nothing can be


def heavy():
    X, Y = noisy(100)
    X[7] *= 30.0
    return X, Y


def spiked():
    X, Y = noisy(100)
    Y[::50] += 1e4
    return X, Y


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (lambda: noisy(1), "number of different sequences is 1, needed: more than"),
        (lambda: noisy(5), "number of different sequences is 5"),
        (lambda: noisy(8), "effective number of sequences"),
        (heavy, "largest leverage of a sequence is 1, needed: at most 0.8"),
        (spiked, "effective number of sequences is"),
    ],
    ids=["one", "fewer than features", "hardly more", "one is huge", "few errors"],
)
def test_nothing_is_promised_without_ground(data, why):
    found = pa.fit(*data()).generalisation()
    assert not found.promised
    assert np.isinf(found.excess_risk)
    assert np.isinf(found.risk)
    assert found.sentence.startswith("Nothing can be promised on fresh sequences: ")
    assert why in found.sentence
    assert found.to_dict()["excess_risk"] is None


def test_the_risk_may_be_unknown_where_the_excess_is_not():
    result = pa.fit(*noisy())
    rows = result.training
    found = influence_of(rows, result.layout.as_theta(result.coef))
    found.left_out[3] += 10 * found.left_out.sum()
    told = generalisation_of(found, 0.95, 200, 200.0, 0)
    assert told.promised
    assert np.isinf(told.risk)
    assert "Of the risk itself nothing can be promised: effective number" in told.sentence
    unknown = generalisation_of(replace(found, noise=found.left_out), 0.95, 200, 200.0, 0)
    assert not unknown.promised


def test_a_decay_that_the_data_chose_is_no_fixed_form():
    X, Y = noisy()
    chosen = pa.fit(X, Y, form=pa.Form(decay="loo")).generalisation()
    assert not chosen.promised
    assert "number of decays tried on these data is" in chosen.sentence
    assert pa.fit(X, Y, form=pa.Form(decay=0.9)).generalisation().promised


def test_words_and_conditions():
    found = pa.fit(*noisy()).generalisation(0.9)
    assert found.promised
    assert found.confidence == 0.9
    assert "calibrated from 200 sequences, not proved" in found.sentence
    assert [each.holds for each in found.conditions] == [None, None, True, True, True, True, True]
    text = " ".join(str(found).split())
    assert text.startswith(found.sentence)
    assert all(str(each) in text for each in found.conditions)
    assert "assumed: tails" in text
    assert found.to_dict()["conditions"][3]["name"] == "largest leverage of a sequence"
    assert found.risk > found.excess_risk > 0
    assert pa.fit(*noisy()).generalisation(0.99).excess_risk > found.excess_risk


# ---- the same data in other clothes


def bounds(result, *arguments, **options):
    found = result.generalisation(*arguments, **options)
    return np.array([found.excess_risk, found.risk, found.mean_excess])


def test_copies_say_nothing_new():
    X, Y = noisy()
    wanted = bounds(pa.fit(X, Y))
    tripled = pa.fit(np.repeat(X, 3, axis=0), np.repeat(Y, 3, axis=0))
    np.testing.assert_allclose(bounds(tripled), wanted, rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_other_targets_of_the_same_tokens_are_no_other_sequences(weighted):
    X, Y = noisy()
    rng = np.random.default_rng(1)
    again = Y + rng.standard_normal(Y.shape)
    share = 0.25 if weighted else 0.5
    weights = np.repeat([share, 1 - share], len(X)) if weighted else None
    both = pa.fit(np.concatenate([X, X]), np.concatenate([Y, again]), sample_weight=weights)
    found = both.generalisation()
    mean = pa.fit(X, share * Y + (1 - share) * again).generalisation()
    assert found.n_sequences == len(X)
    np.testing.assert_allclose(found.excess_risk, mean.excess_risk, rtol=1e-9)
    np.testing.assert_allclose(found.mean_excess, mean.mean_excess, rtol=1e-9)
    # How targets of the same tokens differ is a part of the risk, on fresh sequences, too.
    spread = share * (1 - share) * np.sum((Y - again) ** 2) / len(X)
    assert found.risk > mean.risk + 0.5 * spread


def test_few_sequences_measured_often_promise_what_few_sequences_do():
    """What a layer cannot express is the same each time: 40 measurements are no 40 sequences."""
    rng = np.random.default_rng(0)

    def measured(n_sequences, times):
        X = rng.standard_normal((n_sequences, 4, 2))
        y = np.repeat(np.abs(X[:, -1, 0]) ** 3 * np.sign(X[:, 0, 0]), times)
        return np.repeat(X, times, axis=0), y + 0.01 * rng.standard_normal(len(y))

    best = pa.fit(*measured(200_000, 1))
    fresh, y = measured(50_000, 1)
    risk_of = lambda layer: float(np.mean((layer.predict(fresh)[:, 0] - y) ** 2))  # noqa: E731
    exceeded = 0
    for _ in range(20):
        result = pa.fit(*measured(60, 40))
        truth = risk_of(result) - risk_of(best)
        exceeded += truth > result.generalisation(0.95).excess_risk
    assert exceeded <= 3


def test_order_units_and_zero_weights_change_nothing():
    X, Y = noisy()
    wanted = bounds(pa.fit(X, Y))
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(bounds(pa.fit(X[order], Y[order])), wanted, rtol=1e-9)
    scaled = bounds(pa.fit(1e40 * X, 1e60 * Y))
    np.testing.assert_allclose(scaled, 1e120 * wanted, rtol=1e-9)
    more = np.concatenate([X, 50 * X[:20]]), np.concatenate([Y, 7 + Y[:20]])
    weights = np.repeat([2.0, 0.0], [200, 20])
    np.testing.assert_allclose(bounds(pa.fit(*more, sample_weight=weights)), wanted, rtol=1e-9)


def test_ragged_and_single_precision_data():
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((n, 2)).astype(np.float32) for n in rng.integers(2, 7, 300)]
    Y = [rng.standard_normal((len(x), 1)) for x in X]
    found = pa.fit(X, Y, "causal").generalisation()
    assert found.promised
    assert found.n_sequences == 300


def test_exact_data_show_no_size_of_errors():
    """Of targets that are zero in 95 of 100 sequences, 40 are often all zero: no risk of 0."""
    X, _ = noisy()
    exact = pa.data.random_layer(2, mode="last", random_state=1)(X)
    for Y in (exact, 0.0 * exact):
        found = pa.fit(X, Y).generalisation()
        assert not found.promised
        assert np.isinf(found.risk)
        assert "exact targets show no size of other errors" in found.sentence
    # Nor does a large exact output hide the tails of another.
    heavy = np.random.default_rng(0).standard_t(1.2, len(X))
    assert not pa.fit(X, np.column_stack([heavy, 1e15 * exact[:, 0]])).generalisation().promised


def test_data_are_given_whole_or_not_at_all():
    X, Y = noisy()
    result = pa.fit(X, Y)
    for options in ({"Y": Y}, {"sample_weight": np.ones(len(X))}):
        with pytest.raises(InvalidInput, match="was given without X"):
            result.generalisation(0.95, **options)
    with pytest.raises(InvalidInput, match="X was given without Y"):
        result.generalisation(0.95, X)
    X[3] = np.nan
    with pytest.raises(InvalidInput, match="have been changed since"):
        result.generalisation()


def test_a_confidence_next_to_one_is_refused():
    with pytest.raises(InvalidInput, match="must leave a chance of at least 1e-09"):
        pa.fit(*noisy()).generalisation(1 - 1e-16)
    assert pa.fit(*noisy()).generalisation(1 - 1e-8).excess_risk > 0


def test_a_ridge_and_a_limit_on_heads_count_as_distance(simulation):
    population = simulation.Population(n_outputs=2)
    X, Y = population.draw(np.random.default_rng(5), 600)
    free = pa.fit(X, Y)
    for options in ({"ridge": 2e3}, {"n_heads": 1}):
        other = pa.fit(X, Y, **options)
        found, truth = other.generalisation(), population.excess(other.coef)
        assert truth > 2 * free.generalisation().excess_risk
        assert truth < found.excess_risk < 10 * truth
        assert truth + 2.0 < found.risk


# ---- whose data


def test_data_are_kept_where_they_are_small_and_given_again_elsewhere(tmp_path, monkeypatch):
    X, Y = noisy()
    result = pa.fit(X, Y)
    wanted = bounds(result)
    np.testing.assert_array_equal(bounds(result, 0.95, X, Y), wanted)
    pa.save(result, tmp_path / "fit.safetensors")
    for copy in (pa.load(tmp_path / "fit.safetensors"), deepcopy(result)):
        assert copy.training is None
        with pytest.raises(InvalidInput, match="does not keep its data"):
            copy.generalisation()
        np.testing.assert_array_equal(bounds(copy, X=X, Y=Y), wanted)
    monkeypatch.setattr(training_data, "KEPT_BYTES", 100)
    assert pa.fit(X, Y).training is None
    sums = pa.Moments(n_dims=2, n_outputs=1).update(X, Y)
    np.testing.assert_allclose(
        bounds(pa.fit(statistics=sums), X=X, Y=Y), wanted, rtol=1e-6
    )  # fmt: skip


def test_other_data_are_refused():
    X, Y = noisy()
    result = pa.fit(X, Y)
    with pytest.raises(InvalidInput, match="about the data that were fitted, on which the risk is"):
        result.generalisation(0.95, X[:150], Y[:150])
    X[0] += 1.0
    with pytest.raises(InvalidInput, match="unchanged since"):
        result.generalisation()


def test_a_source_is_given_again(tmp_path):
    X, Y = noisy(240)
    for k in range(3):
        np.savez(tmp_path / f"{k}.npz", X=X[k::3], Y=Y[k::3])
    source = pa.scan(str(tmp_path / "*.npz"))
    result = pa.fit(source)
    found = result.generalisation(0.95, source)
    np.testing.assert_allclose(found.excess_risk, bounds(pa.fit(X, Y))[0], rtol=1e-8)


def test_misuse_is_named():
    X, Y = noisy()
    result = pa.fit(X, Y)
    with pytest.raises(InvalidInput, match="confidence must lie between 0 and 1"):
        result.generalisation(1.0)
    with pytest.raises(InvalidType, match="confidence must be a number"):
        result.generalisation("high")
    classes = pa.fit(X, (Y[:, 0] > 0).astype(int), loss="logistic", ridge=1.0)
    with pytest.raises(InvalidInput, match="squared error; this fit is by log-loss"):
        classes.generalisation()


def test_too_many_features_for_memory(monkeypatch):
    X, Y = noisy(40)
    result = pa.fit(X, Y)
    monkeypatch.setattr(training_data, "memory_limit", lambda: 1000)
    with pytest.raises(pa.errors.OutOfRange, match="generalisation takes about"):
        result.generalisation()
    few = pa.fit(X[:4], Y[:4])
    assert not few.generalisation().promised
