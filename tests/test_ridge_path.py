"""The ridge chosen by the data: against brute force, and against scikit-learn."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import RidgeCV

import polyattn as pa
from polyattn.features import sequence_sums, summaries
from polyattn.reference import erm, features, layer
from polyattn.sequences import MODES
from polyattn.solve.decomposition import DEFAULT_GRID
from polyattn.solve.ridge import RidgePath

RIDGES = np.logspace(-4, 3, 8)
EPS = np.finfo(float).eps

SHAPES = {
    # lengths of the sequences, d: p = 6 for d = 2, 18 for d = 3
    "tall": ([3] * 20, 2),
    "wide": ([3] * 5, 3),
    "square": ([3] * 6, 2),
    "ragged tall": ([1, 2, 3, 4, 5] * 4, 2),
    "ragged wide": ([1, 2, 4], 3),
    "one long": ([12, 1, 1, 1], 2),
    "single tokens": ([1] * 12, 2),
    "single tokens wide": ([1] * 4, 2),
}


# Leave one out ------------------------------------------------------------------------------


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
    """What is left out is still there in its copy."""
    task = make_task("wide", mode)
    doubled = Task(
        task.X * 2, np.concatenate([task.rows] * 2), task.lengths * 2, mode, None, False
    )  # fmt: skip
    path = fitted(doubled, ridge="loo", ridge_grid=[1e-3, 1.0]).ridge_path
    expected = [left_out(doubled, r) for r in (1e-3, 1.0)]
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


# Generalised cross-validation ---------------------------------------------------------------


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


# The choice ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["loo", "gcv"])
@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_the_best_of_the_grid_is_used(rule, shape):
    task = make_task(shape, "causal")
    result = fitted(task, ridge=rule)
    best = int(np.argmin(result.ridge_path.errors))
    assert result.ridge == result.ridge_path.best == pytest.approx(RIDGES[best])
    fixed = fitted(task, ridge=result.ridge, ridge_grid=None)
    np.testing.assert_allclose(result.coef, fixed.coef, rtol=1e-10)
    assert result.outcome.name == "regularised"


def test_ties_go_to_the_larger_ridge():
    path = RidgePath(np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 1.0, 1.0, 2.0]), "loo")
    assert path.best == 3.0


def test_the_default_grid_follows_the_scale_of_the_data():
    task = make_task("tall", "last")
    paths = []
    for scale in (1.0, 10.0):
        result = pa.fit([scale * x for x in task.X], task.Y, ridge="loo")
        assert len(result.ridge_path.ridges) == len(DEFAULT_GRID)
        paths.append(result.ridge_path)
    np.testing.assert_allclose(paths[1].ridges, 1e6 * paths[0].ridges)
    np.testing.assert_allclose(paths[1].errors, paths[0].errors, rtol=1e-4)


def test_a_grid_is_sorted_and_its_repetitions_dropped():
    task = make_task("tall", "last")
    path = fitted(task, ridge="loo", ridge_grid=[3, 1, 3, 2]).ridge_path
    np.testing.assert_allclose(path.ridges, [1.0, 2.0, 3.0])


def test_noise_asks_for_a_ridge_and_clean_data_do_not():
    rng = np.random.default_rng(0)
    truth = pa.data.random_layer(2, mode="last", random_state=1)
    X = rng.standard_normal((12, 4, 2))
    clean = pa.fit(X, truth(X), ridge="loo")
    assert clean.ridge == clean.ridge_path.ridges[0]
    noisy = pa.fit(X, truth(X) + 30 * rng.standard_normal((12, 2)), ridge="loo")
    assert noisy.ridge > 1e3 * clean.ridge


@pytest.mark.parametrize("scale", [1e-40, 1e40])
def test_scaled_tokens_choose_the_same_function(scale):
    task = make_task("tall", "last")
    plain = pa.fit(task.X, task.Y, ridge="loo")
    scaled = pa.fit([scale * x for x in task.X], task.Y, ridge="loo")
    assert scaled.ridge / scale**3 / scale**3 == pytest.approx(plain.ridge, rel=1e-9)
    np.testing.assert_allclose(scaled.coef * scale**3, plain.coef, rtol=1e-8)
    np.testing.assert_allclose(scaled.ridge_path.errors, plain.ridge_path.errors, rtol=1e-3)


# Edges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_one_sequence_cannot_be_left_out(mode):
    task = make_task(([3], 2), mode)
    with pytest.raises(ValueError, match=r"ridge='loo'.*at least two"):
        fitted(task, ridge="loo")
    assert fitted(task, ridge="gcv").ridge_path.kind == "gcv"
    task = make_task(([3, 3, 3], 2), mode)
    with pytest.raises(ValueError, match=r"ridge='loo'.*at least two of positive weight"):
        pa.fit(task.X, task.Y, mode, "loo", sample_weight=[0.0, 1.0, 0.0])


@pytest.mark.parametrize("rule", ["loo", "gcv"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_zero_targets(rule, mode, shape):
    task = make_task(shape, mode)
    zero = Task(task.X, 0 * task.rows, task.lengths, mode, None, False)
    result = fitted(zero, ridge=rule)
    assert np.all(result.coef == 0)
    assert np.all(result.ridge_path.errors == 0)
    assert result.risk == 0


@pytest.mark.parametrize("rule", ["loo", "gcv"])
@pytest.mark.parametrize("mode", MODES)
def test_zero_tokens(rule, mode):
    task = make_task("tall", mode)
    zero = Task([0 * x for x in task.X], task.rows, task.lengths, mode, None, False)
    for grid in (None, RIDGES):
        result = fitted(zero, ridge=rule, ridge_grid=grid)
        assert np.all(result.coef == 0)
        assert np.all(np.isfinite(result.ridge_path.errors))
        power = float(np.mean(np.sum(task.rows**2, axis=1)))
        np.testing.assert_allclose(result.ridge_path.errors, power)


@pytest.mark.parametrize("rule", ["loo", "gcv"])
def test_one_coordinate(rule):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((9, 2, 1)), rng.standard_normal(9)
    result = pa.fit(X, Y, ridge=rule)
    eigenvalue = float(pa.Moments(1).update(X).gram[0, 0])
    np.testing.assert_allclose(result.ridge_path.ridges, DEFAULT_GRID * eigenvalue)
    assert result.coef.shape == (1, 1, 1)
    assert np.all(np.isfinite(result.ridge_path.errors))


@pytest.mark.parametrize("rule", ["loo", "gcv"])
def test_a_ridge_that_vanishes_beside_huge_tokens(rule):
    """Tokens of 1e100 have moments of 1e600: a ridge of 1 is zero beside them."""
    task = make_task("tall", "last")
    X = [1e100 * np.column_stack([x, x[:, 0]]) for x in task.X]
    try:
        result = pa.fit(X, 1e100 * task.Y, ridge=rule, ridge_grid=[1.0])
    except ValueError as refusal:
        assert "ridge" in str(refusal)  # noqa: PT017
    else:
        assert np.all(np.isfinite(result.ridge_path.errors))


REFUSED = {
    "negative": (-1.0, None, ValueError, r"ridge.*not negative.*-1"),
    "nan": (float("nan"), None, ValueError, r"ridge.*finite.*nan"),
    "inf": (float("inf"), None, ValueError, r"ridge.*finite.*inf"),
    "beyond float": (10**400, None, ValueError, r"ridge"),
    "text": ("cv", None, TypeError, r"ridge.*'loo'.*'gcv'.*'cv'"),
    "bool": (True, None, TypeError, r"ridge.*True"),
    "none": (None, None, TypeError, r"ridge.*None"),
    "list": ([1.0], None, TypeError, r"ridge.*\[1.0\].*ridge_grid"),
    "grid without rule": (1.0, [1.0], ValueError, r"ridge_grid.*'loo'"),
    "empty grid": ("loo", [], ValueError, r"ridge_grid.*at least one"),
    "zero in grid": ("loo", [0.0, 1.0], ValueError, r"ridge_grid.*positive"),
    "nan in grid": ("loo", [np.nan, 1.0], ValueError, r"ridge_grid.*NaN"),
    "text grid": ("gcv", ["a"], TypeError, r"ridge_grid.*text"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    ridge, grid, kind, words = REFUSED[name]
    task = make_task("tall", "last")
    with pytest.raises(kind, match=words):
        fitted(task, ridge=ridge, ridge_grid=grid)


def test_statistics_and_rules():
    task = make_task("tall", "last")
    factor = pa.TriangularFactor(2, 2).update(task.X, task.Y)
    moments = pa.Moments(2, 2).update(task.X, task.Y)
    with pytest.raises(ValueError, match=r"'loo'.*sequences.*'gcv'"):
        pa.fit(statistics=moments, ridge="loo")
    with pytest.raises(ValueError, match=r"'gcv'.*Moments.*TriangularFactor"):
        pa.fit(statistics=factor, ridge="gcv")


# Helpers ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """Sequences and their target rows (rows, 2)."""

    X: list[NDArray]
    rows: NDArray
    lengths: list[int]
    mode: str
    weights: NDArray | None
    bias: bool

    @property
    def row_counts(self) -> list[int]:
        return [1] * len(self.X) if self.mode == "last" else self.lengths

    @property
    def Y(self):  # noqa: N802
        """The targets in the form that the mode wants."""
        return (
            self.rows
            if self.mode == "last"
            else np.split(self.rows, np.cumsum(self.row_counts)[:-1])
        )


def make_task(shape, mode, weighted=False, bias=False, seed=0) -> Task:
    """Gaussian sequences with targets that a layer explains in part."""
    lengths, d = SHAPES[shape] if isinstance(shape, str) else shape
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((length, d)) for length in lengths]
    count = len(lengths) if mode == "last" else sum(lengths)
    truth = pa.data.random_layer(d, 2, 1, mode, random_state=1)
    made = truth(X)
    rows = made if mode == "last" else np.concatenate(made)
    rows = rows + rng.standard_normal((count, 2))
    weights = rng.uniform(0.2, 2.0, len(X)) if weighted else None
    return Task(X, rows, list(lengths), mode, weights, bias)


def fitted(task: Task, ridge, ridge_grid=RIDGES) -> pa.FitResult:
    """``pa.fit`` of the task."""
    return pa.fit(
        task.X, task.Y, task.mode, ridge,
        bias=task.bias, sample_weight=task.weights, ridge_grid=ridge_grid,
    )  # fmt: skip


def generalised(task: Task, ridges: NDArray) -> NDArray:
    """The formula with I - H = U diag(ridge / (sigma^2 + ridge)) U^T: no cancellation."""
    phi = erm.design(task.X, task.mode) / features.norm_weights(task.X[0].shape[1])
    left, sigma, _ = np.linalg.svd(phi)
    squares = np.zeros(len(phi))
    squares[: len(sigma)] = sigma**2
    errors = []
    for ridge in ridges:
        kept = ridge / (squares + ridge)
        residual = np.sum((kept[:, None] * (left.T @ task.rows)) ** 2) / len(phi)
        errors.append(residual / np.mean(kept) ** 2)
    return np.array(errors)


def largest_power(task: Task) -> float:
    """The largest eigenvalue of the weighted moments by the reference."""
    phi = erm.design(task.X, task.mode) / features.norm_weights(task.X[0].shape[1])
    each = np.ones(len(task.X)) if task.weights is None else task.weights
    return float(np.linalg.norm(phi * np.sqrt(np.repeat(each, task.row_counts))[:, None], 2) ** 2)


def left_out(task: Task, ridge: float, groups=None) -> float:
    """The weighted mean squared error of each group under the reference fitted without it."""
    tokens = [layer.with_constant(x) if task.bias else x for x in task.X]
    s = features.norm_weights(tokens[0].shape[1])
    phi = erm.design(tokens, task.mode) / s
    each = np.ones(len(task.X)) if task.weights is None else task.weights
    weights = np.repeat(each, task.row_counts)
    groups = np.repeat(np.arange(len(task.X)), task.row_counts) if groups is None else groups
    total = 0.0
    for group in np.unique(groups):
        inside, own = groups != group, groups == group
        root = np.sqrt(weights[inside])[:, None]
        A = np.concatenate([root * phi[inside], np.sqrt(ridge) * np.eye(len(s))])
        b = np.concatenate([root * task.rows[inside], np.zeros((len(s), 2))])
        theta = np.linalg.lstsq(A, b, rcond=None)[0]
        total += float(np.sum(weights[own, None] * (task.rows[own] - phi[own] @ theta) ** 2))
    return total / weights.sum()
