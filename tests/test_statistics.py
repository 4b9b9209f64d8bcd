"""Statistics add: any order, any batches – and the two kinds agree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.sequences import MODES
from statistics_cases import (
    KINDS,
    assert_close,
    assert_counts,
    assert_same,
    contents,
    random_data,
)

# Equal to sums over rows --------------------------------------------------------------------------


@given(random_data())
def test_moments_are_the_sums_of_the_reference(data):
    psi, targets, weights = data.reference()
    stats = data.into(pa.Moments)
    weighted = psi * weights[:, None]
    assert_close(stats.gram, psi.T @ weighted)
    assert_close(stats.cross, weighted.T @ targets)
    assert_close(stats.target_gram, targets.T @ (targets * weights[:, None]))
    assert_close(stats.second_moment, psi.T @ weighted / weights.sum())
    assert_counts(stats, data)


@given(random_data())
def test_the_triangular_factor_squared_is_the_gram(data):
    psi, targets, weights = data.reference()
    stats = data.into(pa.TriangularFactor)
    R, projected = stats.scaled_factor(), stats.scaled_projection()
    assert R.shape == (min(len(psi), psi.shape[1]), psi.shape[1])
    np.testing.assert_array_equal(R, np.triu(R))
    weighted = psi * weights[:, None]
    assert_close(R.T @ R, psi.T @ weighted)
    assert_close(R.T @ projected, weighted.T @ targets)
    power = np.sum(projected**2) + stats.scaled_residual_power()
    assert power == pytest.approx(float(np.sum(targets**2 * weights[:, None])), rel=1e-9, abs=1e-15)
    assert_counts(stats, data)


def test_both_kinds_agree_where_rows_stop_at_the_number_of_columns():
    """p, p + 1 and p + e rows: the places where the factor changes its shape."""
    rng = np.random.default_rng(0)
    for count in (1, 5, 6, 7, 8, 9, 30):
        X, Y = rng.standard_normal((count, 3, 2)), rng.standard_normal((count, 2))
        gram = pa.Moments(2, 2).update(X, Y)
        factor = pa.TriangularFactor(2, 2).update(X, Y)
        R = factor.scaled_factor()
        assert_close(R.T @ R, gram.gram)
        inside = np.sum(factor.scaled_projection() ** 2)
        assert inside + factor.scaled_residual_power() == pytest.approx(np.sum(Y**2))


# Merging ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", KINDS)
@given(data=random_data(), cuts=st.lists(st.integers(0, 9), min_size=2, max_size=2))
def test_merging_is_associative_and_commutative(make, data, cuts):
    first, second = sorted(cuts)
    a, b, c = (
        data.part(start, stop).into(make)
        for start, stop in ((0, first), (first, second), (second, len(data.X)))
    )
    whole = data.into(make)
    for merged in ((a + b) + c, a + (b + c), (c + a) + b, c + (b + a)):
        assert_same(merged, whole)


@pytest.mark.parametrize("make", KINDS)
@given(data=random_data(), size=st.integers(1, 4))
def test_updates_do_not_depend_on_batch_boundaries(make, data, size):
    stats = data.part(0, 0).into(make)
    for start in range(0, len(data.X), size):
        some = data.part(start, start + size)
        assert stats.update(some.X, some.targets, some.weights) is stats
    assert_same(stats, data.into(make))


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_a_batch_without_weight_changes_only_the_counts(make, mode):
    """Whether a stream is cut so that one batch holds only zero weights must not matter."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 3, 2))
    Y = rng.standard_normal((6, 1) if mode == "last" else (6, 3, 1))
    weights = np.array([1.0, 2.0, 0.5, 0.0, 0.0, 0.0])
    whole = make(2, 1, mode).update(X, Y, weights)
    pieces = make(2, 1, mode).update(X[:3], Y[:3], weights[:3])
    pieces.update(X[3:], Y[3:], weights[3:])
    assert_same(pieces, whole)


@pytest.mark.parametrize("make", KINDS)
def test_merging_leaves_its_operands_alone(make):
    rng = np.random.default_rng(0)
    a = make(2, 1).update(rng.standard_normal((4, 3, 2)), rng.standard_normal(4))
    b = make(2, 1).update(1e100 * rng.standard_normal((4, 3, 2)), rng.standard_normal(4))
    before = [contents(a), contents(b)]
    merged = a + b
    merged.update(rng.standard_normal((4, 3, 2)), rng.standard_normal(4))
    for stats, (arrays, metadata) in zip((a, b), before, strict=True):
        now_arrays, now_metadata = contents(stats)
        assert now_metadata == metadata
        for name, array in arrays.items():
            np.testing.assert_array_equal(now_arrays[name], array)


@pytest.mark.parametrize("name", ["gram", "cross", "target_gram", "second_moment"])
def test_what_was_read_does_not_change_with_later_updates(name):
    rng = np.random.default_rng(0)
    stats = pa.Moments(2, 2).update(rng.standard_normal((9, 3, 2)), rng.standard_normal((9, 2)))
    seen = getattr(stats, name)
    before = seen.copy()
    stats.update(rng.standard_normal((9, 3, 2)), rng.standard_normal((9, 2)))
    np.testing.assert_array_equal(seen, before)


@pytest.mark.parametrize("make", KINDS)
def test_empty_statistics_are_the_neutral_element(make):
    rng = np.random.default_rng(0)
    for scale in (1e-100, 1.0, 1e100):
        full = make(2, 1).update(scale * rng.standard_normal((8, 3, 2)), rng.standard_normal(8))
        for merged in (make(2, 1) + full, full + make(2, 1)):
            assert contents(merged)[1] == contents(full)[1]
            assert_same(merged, full)


REFUSED_MERGES = {
    "n_dims": (pa.Moments(2, 1), pa.Moments(3, 1), "n_dims 2 and 3"),
    "n_outputs": (pa.Moments(2, 1), pa.Moments(2, 2), "n_outputs 1 and 2"),
    "mode": (pa.Moments(2, 1, "last"), pa.Moments(2, 1, "full"), "mode last and full"),
    "bias": (pa.Moments(2, 1, bias=True), pa.Moments(2, 1), "bias True and False"),
}


@pytest.mark.parametrize("name", REFUSED_MERGES)
def test_unlike_statistics_do_not_merge(name):
    a, b, words = REFUSED_MERGES[name]
    with pytest.raises(InvalidInput, match=words):
        a + b


def test_moments_and_factors_do_not_merge():
    with pytest.raises(TypeError):
        pa.Moments(2, 1) + pa.TriangularFactor(2, 1)


@pytest.mark.parametrize("make", KINDS)
def test_sum_adds_statistics_and_equal_sums_are_equal(make):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((3, 5, 4, 2)), rng.standard_normal((3, 5, 1))
    parts = [make(2, 1).update(x, y) for x, y in zip(X, Y, strict=True)]
    assert sum(parts) == parts[0] + parts[1] + parts[2]
    assert sum(parts[:1]) == parts[0]
    assert sum(parts[:1]) is not parts[0]
    assert parts[0] == make(2, 1).update(X[0], Y[0])
    assert parts[0] != parts[1]
    assert parts[0] != make(2, 1, bias=True).update(X[0], Y[0])
    assert parts[0] != make(2, 1).update(X[0], 2 * Y[0])
    assert parts[0] != "sums"
    with pytest.raises(TypeError):
        1 + parts[0]
    with pytest.raises(TypeError, match="unhashable"):
        hash(parts[0])


@pytest.mark.parametrize("make", KINDS)
def test_sums_beyond_the_memory_are_refused_with_their_size(make):
    with pytest.raises(InvalidInput, match=r"features would take about .* TB.*'dual'"):
        make(5000)
