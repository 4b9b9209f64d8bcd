"""Leaving out a sequence that outweighs the others, against exact rational arithmetic."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

import polyattn as pa
from exact_least_squares import ExactProblem, design, diagonal, matrix, nearest, rational
from polyattn.errors import OutOfRange
from polyattn.sequences import MODES
from polyattn.solve import decomposition, leave_one_out

SIZES = {
    # factors of some sequences
    "one large": {2: 1e3},
    "two sizes": {1: 30.0, 3: 900.0},
    "one small": {0: 1e-4},
    "alike": {},
}
COUNTS = (5, 6, 7, 15)  # p = 6


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", SIZES)
def test_errors_are_exact_for_every_ridge_of_a_default_grid(monkeypatch, sizes, mode, count):
    # Of a grid that is not given, ridges that rounding hides are left out: few, and only where
    # tiny features have large targets.  Which grid it is has no part in this test.
    grid = np.logspace(-12, 2, 29)
    monkeypatch.setattr(decomposition, "DEFAULT_GRID", grid)
    X, Y = drawn(sizes, mode, count)
    path = pa.fit(X, Y, mode, "loo").ridge_path
    assert len(grid) - len(path.ridges) <= (2 if sizes == "one small" else 0)
    tolerance = 1e-5 if sizes == "one small" else 1e-7
    truth = exact(X, Y, mode, path.ridges[::7])
    np.testing.assert_allclose(path.errors[::7], truth, rtol=tolerance)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", SIZES)
def test_ridges_of_a_user_are_exact_or_refused(sizes, mode, count, weighted):
    X, Y = drawn(sizes, mode, count)
    weights = 10.0 ** np.random.default_rng(1).uniform(-3, 3, count) if weighted else None
    for ridges in ([1e-6, 1e2], [1e3, 1e7]):
        try:
            path = pa.fit(X, Y, mode, "loo", sample_weight=weights, ridge_grid=ridges).ridge_path
        except OutOfRange as refusal:
            assert "cannot be judged" in str(refusal)  # noqa: PT017
            continue
        truth = exact(X, Y, mode, path.ridges, weights)
        np.testing.assert_allclose(path.errors, truth, rtol=1e-3)


@pytest.mark.parametrize("mode", MODES)
def test_features_of_very_different_size(mode):
    """Second moments would lose the smallest, 1e-18 of the largest when they are squared."""
    rng = np.random.default_rng(0)
    X = list(rng.standard_normal((30, 3, 2)) * [1.0, 1e-3])
    Y = rng.standard_normal((30, 1) if mode == "last" else (30, 3, 1))
    path = pa.fit(X, Y, mode, "loo", ridge_grid=[1e-17, 1e-12, 1e-6]).ridge_path
    np.testing.assert_allclose(path.errors, exact(X, Y, mode, path.ridges), rtol=1e-7)


@pytest.mark.parametrize("count", [2, 30])
@pytest.mark.parametrize("rule", ["loo", "gcv"])
def test_ridges_beyond_the_largest_condition_number_are_refused(count, rule):
    """Repeated sequences on a line: the ridge alone holds the smallest singular values up."""
    line = np.random.default_rng(0).standard_normal((count, 3, 1)) * [1.0, 1.0]
    X, Y = np.concatenate([line, line]), np.ones((2 * count, 1))
    largest = float(np.linalg.norm(pa.Moments(2).update(X).gram, 2))
    kept = pa.fit(X, Y, ridge=rule, ridge_grid=[largest / 1e20, largest]).ridge_path
    assert len(kept.ridges) == 2
    with pytest.raises(OutOfRange, match="1 of the 2 ridges"):
        pa.fit(X, Y, ridge=rule, ridge_grid=[largest / 1e23, largest])


def test_sequences_without_weight_among_repeated_ones():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5, 3, 3)).repeat(2, axis=0)
    Y, weights = rng.standard_normal((10, 1)), np.array([1, 1, 0, 1, 1, 1, 1, 0, 1, 1.0])
    found = pa.fit(X, Y, ridge="loo", sample_weight=weights).ridge_path
    without = pa.fit(X[weights > 0], Y[weights > 0], ridge="loo").ridge_path
    np.testing.assert_allclose(found.ridges, without.ridges)
    np.testing.assert_allclose(found.errors, without.errors, rtol=1e-9)


@pytest.mark.parametrize("factor", [100.0, 300.0, 1000.0])
def test_the_ridge_of_least_error_is_chosen(factor):
    """One sequence among thirty decides its own fit, and its leverage is one but for rounding."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = list(rng.standard_normal((30, 4, 2)))
        X[0] = factor * X[0]
        truth = pa.data.random_layer(2, mode="last", random_state=seed)
        Y = truth(X) + 0.1 * rng.standard_normal((30, 2))
        ridges = 10.0 ** np.arange(-6, 10, 2)
        found = pa.fit(X, Y, ridge="loo", ridge_grid=ridges)
        errors = exact(X, Y, "last", ridges)
        assert errors[ridges == found.ridge] <= 1.001 * errors.min()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("mode", MODES)
def test_targets_without_noise_keep_every_ridge(mode, count):
    X = list(np.random.default_rng(0).standard_normal((count, 3, 2)))
    Y = pa.data.random_layer(2, mode=mode, random_state=0)(X)
    found = pa.fit(X, Y, mode, "loo", ridge_grid=[1e-10, 1e-5, 1.0])
    if count == 30 or mode != "last":
        assert found.ridge == 1e-10


def test_a_long_decisive_sequence():
    """More positions than features, and nearly all that is known."""
    rng = np.random.default_rng(0)
    X = [scale * rng.standard_normal((n, 2)) for n, scale in ((9, 100.0), (2, 1.0), (3, 1.0))]
    Y = [rng.standard_normal((len(x), 2)) for x in X]
    path = pa.fit(X, Y, "causal", "loo").ridge_path
    np.testing.assert_allclose(path.errors, exact(X, Y, "causal", path.ridges), rtol=1e-7)


def test_groups_of_decisive_sequences(monkeypatch):
    """As many positions as features: each sequence decides something, in groups or not."""
    rng = np.random.default_rng(0)
    X, Y = list(rng.standard_normal((9, 2, 3))), list(rng.standard_normal((9, 2, 1)))
    whole = pa.fit(X, Y, "full", "loo").ridge_path
    groups = leave_one_out._groups
    monkeypatch.setattr(leave_one_out, "_groups", lambda found, _: groups(found, 4))
    np.testing.assert_allclose(pa.fit(X, Y, "full", "loo").ridge_path.errors, whole.errors)
    sizes = [[len(one.features) for one in group] for group in groups(_with_rows(2, 2, 3, 9), 4)]
    assert sizes == [[2, 2], [3], [9]]


@pytest.mark.parametrize("mode", MODES)
def test_few_numbers_at_a_time(mode, monkeypatch):
    X, Y = drawn("two sizes", mode, 7)
    whole = pa.fit(X, Y, mode, "loo").ridge_path
    monkeypatch.setattr(leave_one_out, "GRID_NUMBERS", 1)
    np.testing.assert_allclose(pa.fit(X, Y, mode, "loo").ridge_path.errors, whole.errors)


def test_tokens_too_wide_for_their_features(monkeypatch):
    """The kernel alone squares the condition number: fewer ridges can be judged."""
    monkeypatch.setattr(decomposition, "FEATURE_NUMBERS", 0)
    X, Y = drawn("one large", "last", 5)
    path = pa.fit(X, Y, ridge="loo").ridge_path
    assert 0 < len(path.ridges) < len(decomposition.DEFAULT_GRID)
    np.testing.assert_allclose(path.errors, exact(X, Y, "last", path.ridges), rtol=1e-3)
    with pytest.raises(OutOfRange, match=r"2 of the 2 ridges.*cannot be judged.*similar size"):
        pa.fit(X, Y, ridge="loo", ridge_grid=[1e-6, 1.0])
    # One part in 1e10 of the largest eigenvalue is still seen.
    largest = float(np.linalg.norm(pa.Moments(2).update(X).gram, 2))
    ridges = [largest / 1e10, largest]
    path = pa.fit(X, Y, ridge="loo", ridge_grid=ridges).ridge_path
    np.testing.assert_allclose(path.errors, exact(X, Y, "last", path.ridges), rtol=1e-3)


@pytest.mark.parametrize("n", [1, 2])
def test_doubts_cover_what_rounding_does(n):
    """A tiny row with large targets, and ridges at which it steers the others."""
    rng = np.random.default_rng(0)
    features, targets = rng.standard_normal((6, 6)), rng.standard_normal((6, 2))
    features[0] *= 1e-12
    ridges = 10.0 ** np.arange(-14, -5)
    blocks = [slice(at, at + n) for at in range(0, 6, n)]
    errors, doubts = in_sample_space(features, targets, ridges, blocks)
    missed = np.abs(errors - plainly_left_out(features, targets, ridges, blocks))
    assert np.all(missed <= doubts)
    # Nor is all in doubt: the least ridges are hidden, the largest are seen.
    assert np.all(doubts <= 1e5 * np.maximum(missed, 1e-15 * errors))
    assert doubts[0] > 1e-4 * errors[0]
    assert doubts[-1] < 1e-8 * errors[-1]
    larger = in_sample_space(features, 2.0**20 * targets, ridges, blocks)
    np.testing.assert_allclose(larger[1], 2.0**40 * doubts, rtol=1e-6)
    larger = in_sample_space(2.0**20 * features, targets, 2.0**40 * ridges, blocks)
    np.testing.assert_allclose(larger[1], doubts, rtol=1e-6)


def in_sample_space(features, targets, ridges, blocks):
    found = decomposition.of_matrix(features, targets, ridges)
    return leave_one_out._in_sample_space(found, blocks)


def plainly_left_out(features, targets, ridges, blocks) -> NDArray:
    """Squared errors by rationals."""
    total = []
    for ridge in ridges:
        power = rational(0.0)
        for block in blocks:
            kept = matrix(np.delete(features, block, axis=0))
            known = matrix(np.delete(targets, block, axis=0))
            moments = kept.transpose() * kept + diagonal([rational(ridge)] * features.shape[1])
            missed = matrix(targets[block]) - matrix(features[block]) * moments.solve(
                kept.transpose() * known
            )
            power += sum((v * v for row in missed.tolist() for v in row), rational(0.0))
        total.append(nearest(power))
    return np.array(total)


def test_what_is_known():
    """Errors in doubt are not; errors of nearly zero need not be."""
    ridges = np.array([1.0, 2.0, 3.0, 4.0])
    components = np.array([[0.6], [0.8]])
    found = decomposition.Decomposition(np.ones(2), np.eye(2), components, 0.0, ridges)
    errors = np.array([1.0, 1.0, 0.0, 1e-13])
    doubts = np.array([1.1e-4, 0.9e-4, 0.9e-16, 1.1e-16])
    kept, known = leave_one_out._judged(found, errors, doubts, default=True)
    np.testing.assert_array_equal(kept, [2.0, 3.0])
    np.testing.assert_array_equal(known, [1.0, 0.0])
    with pytest.raises(OutOfRange, match="2 of the 4 ridges"):
        leave_one_out._judged(found, errors, doubts, default=False)
    with pytest.raises(OutOfRange, match="4 of the 4 ridges"):
        leave_one_out._judged(found, 0 * errors, doubts + 1.0, default=True)


@pytest.mark.parametrize("mode", MODES)
def test_a_decisive_sequence_in_doubt_is_refused(mode):
    """Many tiny sequences with large targets: the large one decides, and they steer it."""
    rng = np.random.default_rng(0)
    large = 6 if mode == "last" else 2
    X = [(1.0 if i < large else 1e-5) * rng.standard_normal((3, 2)) for i in range(12)]
    Y = rng.standard_normal((12, 1) if mode == "last" else (12, 3, 1))
    with pytest.raises(OutOfRange, match="cannot be judged"):
        pa.fit(X, Y, mode, "loo", ridge_grid=[1e-16, 1.0])


def drawn(sizes: str, mode: str, count: int) -> tuple[list[NDArray], NDArray | list[NDArray]]:
    """Sequences of three tokens, and a layer's outputs with noise."""
    rng = np.random.default_rng(count)
    factors = SIZES[sizes]
    X = [factors.get(i, 1.0) * rng.standard_normal((3, 2)) for i in range(count)]
    truth = pa.data.random_layer(2, mode=mode, random_state=0)(X)
    noisy = [y + 0.1 * rng.standard_normal(np.shape(y)) for y in truth]
    return X, np.array(noisy) if mode == "last" else noisy


def exact(X, Y, mode: str, ridges, weights=None) -> NDArray:
    """Each sequence predicted by the rational minimiser without it."""
    given = np.ones(len(X)) if weights is None else weights
    ends = [0, *np.cumsum([1 if mode == "last" else len(x) for x in X])]
    rows = np.asarray(Y) if mode == "last" else np.concatenate(Y)
    positions = sum(
        w * (stop - first) for w, (first, stop) in zip(given, pairwise(ends), strict=True)
    )
    errors = []
    for ridge in ridges:
        total = rational(0.0)
        for i, (first, stop) in enumerate(pairwise(ends)):
            others = [j for j in range(len(X)) if j != i]
            kept = np.delete(rows, np.s_[first:stop], axis=0)
            fit = ExactProblem.of(
                [X[j] for j in others], kept, mode, ridge, weights=given[others]
            )  # fmt: skip
            missed = matrix(rows[first:stop]) - design([X[i]], mode) * fit.coef
            total += rational(given[i]) * sum(
                (v * v for row in missed.tolist() for v in row), rational(0.0)
            )
        errors.append(nearest(total / rational(positions)))
    return np.array(errors)


def _with_rows(*sizes: int) -> list:
    return [leave_one_out.SequenceRows(0, np.zeros((n, 3)), np.zeros((n, 1))) for n in sizes]


@pytest.mark.filterwarnings("error")
def test_a_ridge_of_almost_nothing_is_refused():
    """Its effect is beyond float64, not infinite."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 4, 3)), rng.standard_normal((40, 2))
    with pytest.raises(OutOfRange, match="1 of the 2 ridges of ridge_grid cannot be judged"):
        pa.fit(X, Y, ridge="loo", ridge_grid=[1e-300, 1.0])
