"""Leaving out a sequence that outweighs the others, against exact rational arithmetic."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

import polyattn as pa
from exact_least_squares import ExactProblem, design, matrix, nearest, rational
from polyattn.errors import OutOfRange
from polyattn.sequences import MODES
from polyattn.solve import leave_one_out, spectrum

SIZES = {
    # factors of some sequences
    "one large": {2: 1e3},
    "two sizes": {1: 30.0, 3: 900.0},
    "one small": {0: 1e-4},
    "alike": {},
}
COUNTS = (5, 6, 7, 30)  # p = 6


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", SIZES)
def test_errors_are_exact_for_every_ridge_of_the_default_grid(sizes, mode, count):
    X, Y = drawn(sizes, mode, count)
    path = pa.fit(X, Y, mode, "loo").ridge_path
    # Those that rounding hides are left out: one of tiny features with large targets, at most.
    assert len(spectrum.GRID) - len(path.ridges) <= (2 if sizes == "one small" else 0)
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
    monkeypatch.setattr(spectrum, "FEATURE_NUMBERS", 0)
    X, Y = drawn("one large", "last", 5)
    path = pa.fit(X, Y, ridge="loo").ridge_path
    assert 0 < len(path.ridges) < len(spectrum.GRID)
    np.testing.assert_allclose(path.errors, exact(X, Y, "last", path.ridges), rtol=1e-3)
    with pytest.raises(OutOfRange, match=r"2 of the 2 ridges.*cannot be judged.*similar size"):
        pa.fit(X, Y, ridge="loo", ridge_grid=[1e-6, 1.0])


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
    return [leave_one_out._Sequence(0, np.zeros((n, 3)), np.zeros((n, 1))) for n in sizes]
