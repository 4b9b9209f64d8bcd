"""The ridge and the decay that data choose: errors of leaving out, at every scale."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
import polyattn as pa
from oracle import EPS, MODES
from polyattn.errors import InvalidInput, InvalidType, OutOfRange

RIDGES = np.logspace(-4, 3, 8)


def fit(X, rows, mode="last", ridge="loo", grid=RIDGES, **options):
    """Of targets as rows, in the shape that the mode wants."""
    return pa.fit(X, split(X, rows, mode), mode, ridge, ridge_grid=grid, **options)


def split(X, rows, mode):
    return rows if mode == "last" else np.split(rows, np.cumsum([len(x) for x in X])[:-1])


def task(lengths, n_dims=2, mode="last", seed=0):
    """Gaussian sequences, and targets (rows, 2) that a layer explains in part."""
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((n, n_dims)) for n in lengths]
    psi = oracle.design(X, {"mode": mode})
    return X, psi @ rng.standard_normal((psi.shape[1], 2)) + rng.standard_normal((len(psi), 2))


def left_out_error(X, rows, form, ridge, weights=None):
    """The weighted mean squared error of each sequence by the minimiser without it."""
    mode = form["mode"]
    psi = oracle.design(X, form)
    _, u = oracle.summaries(X[0], form)[0]
    sizes = oracle.squared_sizes(form, X[0].shape[1], len(u))
    each = np.ones(len(X)) if weights is None else weights
    by_row_count = [1 if mode == "last" else len(x) for x in X]
    by_row = np.repeat(each, by_row_count)
    groups = np.repeat(range(len(X)), by_row_count)
    missed = oracle.left_out(psi, rows, groups, sizes, ridge, by_row)
    return float(by_row @ np.sum(missed**2, axis=1) / by_row.sum())


@given(oracle.forms(), st.lists(st.integers(1, 9), min_size=2, max_size=30), st.integers(0, 99))
def test_loo_is_brute_force_over_sequences(form, lengths, seed):
    """Of every form, with weights, with more rows than features or fewer."""
    form, context_dims = oracle.split_context(form)
    if context_dims is not None:
        return
    form = {**oracle.DEFAULTS, **form}
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((n, 3)) for n in lengths]
    # Sequences without weight are as if they were absent.
    weights = rng.uniform(0.2, 2.0, len(X)) * (np.arange(len(X)) % 5 < 4) if seed % 2 else None
    psi = oracle.design(X, form)
    rows = rng.standard_normal((len(psi), 2))
    path = pa.fit(
        X, split(X, rows, form["mode"]), form=pa.Form(**form), ridge="loo", ridge_grid=RIDGES,
        sample_weight=weights,
    ).ridge_path  # fmt: skip
    expected = np.array([left_out_error(X, rows, form, r, weights) for r in RIDGES])
    # What is left may determine nothing: the ridge alone then holds rounding of the moments down.
    rounding = EPS * 4 * np.linalg.norm(psi, 2) ** 2 / RIDGES
    assert path.kind == "loo"
    np.testing.assert_allclose(path.ridges, RIDGES)
    assert np.all(abs(path.errors - expected) <= (1e-8 + 40 * rounding) * expected)


def drawn(name, mode, count):
    """Sequences of which some outweigh the others, and a layer's outputs with noise."""
    rng = np.random.default_rng(count)
    scales, lengths = {
        "one large": ([1, 1, 1e3], [3]), "two sizes": ([1, 30.0, 1, 900.0], [3]),
        "one small": ([1e-4], [3]),
        # More positions than features, and nearly all that is known.
        "one long": ([100.0], [9, 2]),
        # Second moments would lose the smallest features, 1e-18 of the largest when squared.
        "coordinates": ([], [3]),
    }[name]  # fmt: skip
    X = [rng.standard_normal((n, 2)) for n in (lengths * count)[:count]]
    X = [x * scale for x, scale in zip(X, scales + [1.0] * count, strict=False)]
    X = [x * [1.0, 1e-3] for x in X] if name == "coordinates" else X
    psi = oracle.design(X, {"mode": mode})
    return X, psi @ rng.standard_normal((6, 2)) + 0.1 * rng.standard_normal((len(psi), 2))


def exact_left_out(X, rows, mode, ridges):
    """Each sequence predicted by the rational minimiser without it."""
    n_rows = [1 if mode == "last" else len(x) for x in X]
    starts = np.concatenate([[0], np.cumsum(n_rows)])
    errors = []
    for ridge in ridges:
        total = 0
        for i, x in enumerate(X):
            own = slice(starts[i], starts[i + 1])
            others = [z for j, z in enumerate(X) if j != i]
            rest = np.delete(rows, own, axis=0)
            fitted = oracle.ExactFit.of(others, rest, {"mode": mode}, ridge)
            outputs = oracle.exact_design([x], {"mode": mode}) * fitted.coef
            missed = oracle.matrix(rows[own]) - outputs
            total += sum(v * v for row in missed.tolist() for v in row)
        errors.append(oracle.nearest(total) / len(rows))
    return np.array(errors)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["one large", "two sizes", "one small", "one long", "coordinates"])
@pytest.mark.parametrize("count", [5, 6, 15])
def test_what_outweighs_the_rest_is_left_out_exactly(name, mode, count):
    X, rows = drawn(name, mode, count)
    path = fit(X, rows, mode, grid=None).ridge_path
    truth = exact_left_out(X, rows, mode, path.ridges[::9])
    rtol = 1e-5 if name == "one small" else 1e-7
    np.testing.assert_allclose(path.errors[::9], truth, rtol=rtol)


def test_the_ridge_of_least_error_is_chosen():
    """One sequence among thirty decides its own fit, and its leverage is one but for rounding."""
    X, rows = drawn("one large", "last", 30)
    ridges = 10.0 ** np.arange(-6, 10, 2)
    found, errors = fit(X, rows, grid=ridges), exact_left_out(X, rows, "last", ridges)
    np.testing.assert_allclose(found.ridge_path.errors, errors, rtol=1e-5)
    assert errors[ridges == found.ridge] <= 1.001 * errors.min()
    # The fit is that of the ridge that was chosen.
    np.testing.assert_allclose(found.coef, pa.fit(X, rows, ridge=found.ridge).coef, rtol=1e-10)


def test_ridges_that_rounding_hides_are_refused():
    """By the condition number, and by what tiny rows with large targets do."""
    rng = np.random.default_rng(0)
    for count in (2, 30):
        X, Y = np.tile(rng.standard_normal((count, 3, 1)), (2, 1, 2)), np.ones((2 * count, 1))
        phi = oracle.plain_design(X) / np.sqrt(oracle.squared_sizes({}, 2, 2))
        largest = float(np.linalg.norm(phi, 2) ** 2)
        for rule in ("loo", "gcv"):
            kept = fit(X, Y, "last", rule, [largest / 1e20, largest]).ridge_path
            assert len(kept.ridges) == 2
            with pytest.raises(OutOfRange, match="1 of the 2 ridges"):
                fit(X, Y, "last", rule, [largest / 1e23, largest])
    X = [(1.0 if i < 6 else 1e-5) * rng.standard_normal((3, 2)) for i in range(12)]
    with pytest.raises(OutOfRange, match="ridge"):
        fit(X, rng.standard_normal((12, 1)), grid=[1e-16, 1.0])


def generalised(X, rows, mode, ridges):
    """mean ||(I - H) y||^2 / (1 - tr H / N)^2 by I - H = U diag(ridge / (sigma^2 + ridge)) U^T."""
    psi = oracle.design(X, {"mode": mode})
    phi = psi / np.sqrt(oracle.squared_sizes({}, X[0].shape[1], X[0].shape[1]))
    left, sigma, _ = np.linalg.svd(phi)
    squares = np.zeros(len(phi))
    squares[: len(sigma)] = sigma**2
    errors = []
    for ridge in ridges:
        kept = ridge / (squares + ridge)
        residual = np.sum((kept[:, None] * (left.T @ rows)) ** 2) / len(phi)
        errors.append(residual / np.mean(kept) ** 2)
    return np.array(errors)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("lengths", "n_dims"), [([3] * 5, 3), ([3] * 6, 2), ([1, 2, 3, 4, 5] * 4, 2), ([1] * 4, 2)]
)
def test_gcv_is_its_formula(lengths, n_dims, mode):
    X, rows = task(lengths, n_dims, mode)
    path = fit(X, rows, mode, "gcv").ridge_path
    np.testing.assert_allclose(path.errors, generalised(X, rows, mode, RIDGES), rtol=1e-5)
    # Sequences without weight are as if they were absent.
    more = np.concatenate([rows, rows[: 1 if mode == "last" else len(X[0])]])
    weighted = fit([*X, X[0]], more, mode, "gcv", sample_weight=np.append(np.ones(len(X)), 0.0))
    np.testing.assert_allclose(weighted.ridge_path.errors, path.errors, rtol=1e-9)
    sums = pa.Moments(n_dims, 2, mode).update(X, split(X, rows, mode))
    streamed = pa.fit(statistics=sums, ridge="gcv", ridge_grid=RIDGES).ridge_path
    np.testing.assert_allclose(streamed.errors, path.errors, rtol=1e-5)
    # Few rows are met exactly as the ridge falls: 0 / 0, where rounding must not win.
    path = fit(X, rows, mode, "gcv", None).ridge_path
    truth = generalised(X, rows, mode, path.ridges)
    assert truth[int(np.argmin(path.errors))] <= 1.01 * truth.min()


def test_gcv_of_singular_moments_counts_rounding_as_zero():
    """Of their eigenvalues some are negative."""
    X, rows = task([3] * 20, 2, seed=1)
    X = [np.column_stack([x, x[:, 0]]) for x in X]
    moments = pa.Moments(3, 2).update(X, rows)
    path = pa.fit(statistics=moments, ridge="gcv", ridge_grid=RIDGES).ridge_path
    np.testing.assert_allclose(path.errors, generalised(X, rows, "last", RIDGES), rtol=1e-9)


def test_exact_targets_want_the_smallest_ridge():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4, 2))
    Y = oracle.plain_design(X) @ rng.standard_normal((6, 2))
    moments = pa.fit(statistics=pa.Moments(2, 2).update(X, Y), ridge="gcv").ridge_path
    assert 0 < moments.errors[0] < 1e-18 * np.mean(np.sum(Y**2, axis=1))
    for path in (moments, pa.fit(X, Y, ridge="loo").ridge_path):
        assert path.best == path.ridges[0]


@given(st.sampled_from(["loo", "gcv"]), st.integers(-70, 60), st.integers(-70, 60))
@settings(max_examples=10)
def test_the_path_has_the_units_of_the_data(rule, tokens, targets):
    """The default grid moves with the data, errors with the targets: to the bit."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 4, 2)), rng.standard_normal((30, 1))
    one = pa.fit(X, Y, ridge=rule)
    other = pa.fit(np.ldexp(X, tokens), np.ldexp(Y, targets), ridge=rule)
    paths = one.ridge_path, other.ridge_path
    np.testing.assert_array_equal(np.ldexp(paths[0].errors, 2 * targets), paths[1].errors)
    np.testing.assert_allclose(np.ldexp(paths[0].ridges, 6 * tokens), paths[1].ridges, rtol=1e-14)
    np.testing.assert_array_equal(np.ldexp(one.coef, targets - 3 * tokens), other.coef)


@pytest.mark.parametrize("rule", ["loo", "gcv"])
@pytest.mark.parametrize("mode", MODES)
def test_zeros_tie_and_ties_go_to_the_larger_ridge(mode, rule):
    X, rows = task(range(2, 12), 2, mode)
    nothing = fit(X, 0 * rows, mode, rule)
    assert not np.any(nothing.ridge_path.errors)
    assert nothing.ridge == pytest.approx(RIDGES[-1])
    path = fit([0 * x for x in X], rows, mode, rule, [3, 1, 3, 2]).ridge_path
    np.testing.assert_allclose(path.errors, np.mean(np.sum(rows**2, axis=1)))
    np.testing.assert_allclose(path.ridges, [1.0, 2.0, 3.0])


def test_misuse_is_named():
    X, rows = task([3] * 20)
    sums, factor = (kind(2, 2).update(X, rows) for kind in (pa.Moments, pa.TriangularFactor))
    for options, words in (
        ({"ridge": float("inf")}, "ridge"), ({"ridge": "cv"}, "'loo'.*'gcv'"),
        ({"ridge": 1.0, "ridge_grid": [1.0]}, "ridge_grid"),
        ({"ridge": "loo", "ridge_grid": []}, "ridge_grid"),
        ({"ridge": "loo", "ridge_grid": [np.nan, 1.0]}, "ridge_grid"),
        ({"ridge": "loo", "sample_weight": np.eye(20)[0]}, "'loo'"),
        # Sums cannot leave sequences out.
        ({"X": None, "Y": None, "statistics": sums, "ridge": "loo"}, "loo"),
        ({"X": None, "Y": None, "statistics": factor, "ridge": "gcv"}, "gcv"),
    ):  # fmt: skip
        with pytest.raises((InvalidInput, InvalidType), match=words):
            pa.fit(**({"X": X, "Y": rows} | options))
    for call in (lambda form: pa.Moments(2, 1, form=form), lambda form: pa.certify(X, form=form)):
        with pytest.raises(InvalidInput, match="decay"):
            call(pa.Form(decay="loo"))


def decaying(decay, noise=0.0, seed=0, n_sequences=20, n_tokens=30):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_sequences, n_tokens, 2))
    psi = oracle.design(list(X), {"mode": "causal", "decay": decay})
    theta = rng.standard_normal((6, 1))
    Y = (psi @ theta).reshape(n_sequences, n_tokens, 1)
    return X, Y + noise * Y.std() * rng.standard_normal(Y.shape), oracle.table_of(theta, {}, 3, 2)


CAUSAL = pa.Form(mode="causal", decay="loo")


def test_a_planted_decay_is_found():
    for decay in (0.5, 0.99, 1.0):
        X, Y, coef = decaying(decay)
        result = pa.fit(X, Y, form=CAUSAL)
        assert result.form.decay == result.decay_path.best == pytest.approx(decay, abs=1e-6)
        np.testing.assert_allclose(result.coef, coef, atol=1e-5 * np.abs(coef).max())
    X, Y, _ = decaying(0.8, n_sequences=150, n_tokens=10)
    assert pa.fit(X, Y[:, -1], form=pa.Form(decay="loo")).form.decay == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize(
    ("n_seeds", "least", "most"),
    [(3, 0.2, 2.5), pytest.param(30, 0.6, 1.6, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99])
def test_error_bars_of_decays_are_calibrated(n_seeds, least, most, decay):
    deviations = []
    for seed in range(n_seeds):
        X, Y, _ = decaying(decay, 0.1, seed)
        result = pa.fit(X, Y, form=CAUSAL)
        deviations.append((result.form.decay - decay) / result.decay_path.error_bar)
    assert least < np.sqrt(np.mean(np.square(deviations))) < most


def test_the_error_bar_of_a_decay_is_that_of_the_curvature():
    """Which is that of the least squared error, as the decay moves; there are 600 rows."""
    X, Y, _ = decaying(0.5, 0.01)
    path = pa.fit(X, Y, form=CAUSAL).decay_path

    def power(decay):
        psi = oracle.design(list(X), {"mode": "causal", "decay": decay})
        return float(np.linalg.lstsq(psi, Y.reshape(-1, 1))[1][0])

    low, least, high = (power(path.best + step) for step in (-1e-3, 0.0, 1e-3))
    bar = 1e-3 * np.sqrt(least / (600 - 6) / (0.5 * (low + high) - least))
    assert path.error_bar == pytest.approx(bar, rel=1e-3)


def test_errors_of_decays_are_those_of_leaving_out():
    X, Y, _ = decaying(0.7, 0.2, n_sequences=10, n_tokens=20)
    path = pa.fit(X, Y, form=CAUSAL, ridge=0.5).decay_path
    rows = Y.reshape(-1, 1)
    grid = [0.5, 900.0]
    by_grid = pa.fit(X, Y, form=CAUSAL, ridge="loo", ridge_grid=grid).decay_path
    for at in (0, len(path.decays) // 2, -1):
        form = {"mode": "causal", "decay": float(path.decays[at])}
        wanted = [left_out_error(list(X), rows, form, ridge) for ridge in grid]
        assert path.errors[at] == pytest.approx(wanted[0], rel=1e-7)
        assert by_grid.errors[at] == pytest.approx(min(wanted), rel=1e-7)


def test_data_that_say_nothing_of_the_decay_are_named():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4, 2))
    Y = rng.standard_normal((30, 1))
    for tokens, more in (
        (X[:, :1], {}), (X, {"window": 1}), (np.repeat(X[:, :1], 4, axis=1), {}),
        (X[:, :2], {"include_query": False}),
    ):  # fmt: skip
        exact = pa.fit(tokens, Y, ridge=1.0, form=pa.Form(decay=0.5, **more)).predict(tokens)
        for targets in (Y, exact):
            path = pa.fit(tokens, targets, form=pa.Form(decay="loo", **more)).decay_path
            assert (path.best, path.error_bar, path.is_flat) == (1.0, None, True)
