"""Chunks taken out again, and older data that count less: sums, counts, and sound certificates."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyattn as pa
from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.verified.gram import gram_of, prove_definite
from polyattn.errors import InvalidInput
from polyattn.form import Form, Layout
from rational_arithmetic import rational_features
from source_cases import ListSource, memory_source
from statistics_cases import KINDS, contents, make_data

both_kinds = pytest.mark.parametrize("make", KINDS)

EPS = np.finfo(float).eps


def named(data, make, name):
    stats = make(data.d, data.e, data.mode, data.bias)
    return stats.update(data.X, data.targets, data.weights, chunk=name)


# Taking out ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["last", "causal", "full"])
@given(
    lengths=st.lists(st.integers(1, 5), min_size=8, max_size=12),
    cut=st.integers(1, 4), seed=st.integers(0, 2**20), weighted=st.booleans(),
    scale=st.sampled_from([1e-45, 1.0, 1e40]),
)  # fmt: skip
@settings(max_examples=12)
def test_what_is_left_is_the_sum_of_the_rest(mode, lengths, cut, seed, weighted, scale):
    data = make_data(lengths, 2, 2, mode, seed, weighted)
    data = replace(data, X=[scale * x for x in data.X], Y=[y / scale for y in data.Y])
    parts = [
        named(data.part(first, stop), pa.Moments, name)
        for name, first, stop in (("a", 0, cut), ("b", cut, 6), ("c", 6, len(lengths)))
    ]
    a, b, c = parts
    whole, rest = a + b + c, a + c
    before = whole.copy(), b.copy()
    left = whole - b
    assert (whole, b) == before
    assert left.contents == rest.contents
    for key in ("n_rows", "n_positive", "n_sequences"):
        assert getattr(left, key) == getattr(rest, key)
    assert left.max_length >= rest.max_length
    assert left.total_weight == pytest.approx(rest.total_weight, rel=1e-12)
    for name in ("gram", "cross", "target_gram"):
        size = np.max(np.abs(getattr(whole, name)))
        np.testing.assert_allclose(
            getattr(left, name), getattr(rest, name), rtol=0, atol=1000 * EPS * size
        )
    # What was taken out can be added again; something else cannot be taken out again.
    assert (left + b).contents == whole.contents
    with pytest.raises(InvalidInput, match=r"'b', .*is not counted"):
        left - b
    assert (whole - whole) == pa.Moments(2, 2, mode)


def test_chunks_of_a_source_are_taken_out():
    source = memory_source(70)
    whole = pa.Moments(2, 1).update(source)
    some = pa.Moments(2, 1).update(ListSource(source.chunks[10:30], 2, 1))
    rest = ListSource([*source.chunks[:10], *source.chunks[30:]], 2, 1)
    left = whole - some
    assert left.contents == pa.Moments(2, 1).update(rest).contents
    np.testing.assert_allclose(left.gram, pa.Moments(2, 1).update(rest).gram, rtol=1e-9)
    assert pa.certify(statistics=left).identifiable


def small(seed, name, scale=1.0, count=30):
    rng = np.random.default_rng(seed)
    X, Y = scale * rng.standard_normal((count, 3, 2)), rng.standard_normal((count, 1))
    return pa.Moments(2, 1).update(X, Y, chunk=name)


def test_what_cannot_be_taken_out():
    a, b = small(0, "a"), small(1, "b")
    unnamed = pa.Moments(2, 1).update(np.ones((2, 3, 2)), np.ones(2))
    other_b = small(2, "b")
    for whole, part, words in (
        (a, b, "'b', 0..30, is not counted"),
        (a + unnamed, unnamed, "parts without a name"),
        (a + b, other_b, "'b' has changed since"),
        (a, pa.Moments(3, 1), "n_dims 2 and 3"),
    ):
        with pytest.raises(InvalidInput, match=words):
            whole - part
    assert (a + b + unnamed - b).contents == (a + unnamed).contents
    with pytest.raises(TypeError):
        a - 1
    forged = a.copy()
    forged.n_rows = 10
    with pytest.raises(InvalidInput, match="contradict themselves"):
        forged - a


def test_nothing_is_taken_out_of_a_triangular_factor():
    factor = pa.TriangularFactor(2).update(np.ones((2, 3, 2)), chunk="a")
    with pytest.raises(InvalidInput, match=r"triangular factor.*Moments"):
        factor - factor


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda X, Y, w: (30.0 * X, Y, w), r"feature \d+ a share of .*Make the moments again"),
        (lambda X, Y, w: (X, 1e4 * Y, w), "squares of output 0 a share"),
        (lambda X, Y, w: (X / 1e3, Y / 1e9, 1e18 * w), "of the total weight a share"),
    ],
)
def test_digits_that_would_be_lost_are_refused(spoil, words):
    """Sixth powers: tokens of thirty times the size leave 1e-9 of the sums."""
    rng = np.random.default_rng(0)
    X, Y, w = rng.standard_normal((30, 3, 2)), rng.standard_normal((30, 1)), np.ones(30)
    a = pa.Moments(2, 1).update(X, Y, w, chunk="a")
    b = pa.Moments(2, 1).update(*spoil(X, Y, w), chunk="b")
    assert (a + b) - a
    with pytest.raises(InvalidInput, match=words):
        (a + b) - b


def test_digits_lost_one_after_the_other_are_counted_together():
    """Each time a share of some 2^-15 would be left, which is enough once and not twice."""
    a, b, c = small(0, "a"), small(1, "b", 5.0), small(2, "c", 5.0)
    left = (a + b) - b
    assert 2.0**10 < left.cancellation < 2.0**20
    again = (left + c) - c
    assert again.cancellation > left.cancellation
    d = small(3, "d", 30.0)
    with pytest.raises(InvalidInput, match="share"):
        (a + d) - d


# Sound certificates -------------------------------------------------------------------------------


def exact_gram(X, weights=None):
    """sum w psi psi^T in rational numbers, (p, p)."""
    total = None
    for at, x in enumerate(X):
        (row,) = rational_features(x, "last", False)
        weight = Fraction(1) if weights is None else Fraction(weights[at])
        outer = np.array([[weight * one * other for other in row] for one in row], dtype=object)
        total = outer if total is None else total + outer
    return total


def distance(gram, truth):
    """||D (S_computed - S) D||, the difference made in rational numbers."""
    exact = np.array([[Fraction(float(each)) for each in row] for row in gram.matrix], dtype=object)
    scaled = (exact - truth).astype(float) * gram.scale * gram.scale[:, None]
    return float(np.linalg.norm(scaled, 2))


def twice(rng, count):
    """Sequences of which each is there twice: their features have rank ``count``."""
    X = rng.integers(-(2**20), 2**20, (count, 3, 2)) * 2.0**-20
    return np.concatenate([X, X])


SPACE = FeatureSpace.whole(Layout.plain(2))


def taken_out(seed, scale):
    """Five sequences twice over, p = 6, from which others of another size were taken out."""
    rng = np.random.default_rng(seed)
    X, large = twice(rng, 5), scale * rng.standard_normal((40, 3, 2))
    both = pa.Moments(2).update(X, chunk="a") + pa.Moments(2).update(large, chunk="b")
    return X, both - pa.Moments(2).update(large, chunk="b")


def test_rounding_of_a_difference_is_bounded_and_a_naive_bound_is_wrong():
    """Noise of what was taken out makes singular sums look definite; the bound knows of it."""
    wrong = 0
    for seed in range(12):
        X, left = taken_out(seed, 3.0)
        gram = gram_of(left, SPACE)
        off, naive = distance(gram, exact_gram(X)), replace(gram, subtracted=None)
        assert off <= gram.error(gram.scale)
        assert prove_definite(gram) is None
        certificate = pa.certify(statistics=left)
        assert certificate.verdict == "undecided"
        # The same without the squares that were taken out: false proofs.
        naive = replace(naive, n_roundings=left.n_rows, magnitudes=gram.powers)
        wrong += off > naive.error(naive.scale) and prove_definite(naive) is not None
    assert wrong >= 2


def test_sums_are_not_called_unique_where_only_noise_is():
    """Solvers know of the lost digits, too."""
    unique = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, large = twice(rng, 5), 3.0 * rng.standard_normal((40, 3, 2))
        Y = rng.standard_normal((50, 1))
        b = pa.Moments(2, 1).update(large, Y[10:], chunk="b")
        left = (pa.Moments(2, 1).update(X, Y[:10], chunk="a") + b) - b
        assert pa.fit(statistics=left).rank == 5
        left.subtracted = None
        unique += pa.fit(statistics=left).rank == 6
    assert unique >= 2


def test_what_is_left_is_proved_where_enough_is_left():
    rng = np.random.default_rng(0)
    X, large = rng.standard_normal((40, 3, 2)), 4.0 * rng.standard_normal((40, 3, 2))
    b = pa.Moments(2).update(large, chunk="b")
    left = (pa.Moments(2).update(X, chunk="a") + b) - b
    certificate = pa.certify(statistics=left)
    assert certificate.identifiable
    # More is added, in other units: what was taken out is not forgotten.
    left.update(1e20 * X)
    gram = gram_of(left, SPACE)
    assert np.all(gram.subtracted > 0)
    assert gram.subtracted.max() < 1e-100 * gram.powers.max()
    assert gram.total_weight >= left.total_weight


@pytest.mark.parametrize("form", [Form(key=[0], value=[1]), Form(mode="causal", decay=0.5)])
def test_magnitudes_of_other_forms_are_those_of_both(form):
    rng = np.random.default_rng(0)
    X, large = rng.standard_normal((40, 3, 2)), 4.0 * rng.standard_normal((40, 3, 2))
    a, b = (pa.Moments(2, form=form).update(x, chunk=name) for x, name in ((X, "a"), (large, "b")))
    left, space = (a + b) - b, FeatureSpace.whole(a.layout)
    grams = [gram_of(each, space) for each in (left, a, b)]
    assert np.all(grams[0].magnitudes >= grams[1].magnitudes + grams[2].magnitudes)
    assert grams[0].error(grams[0].scale) > grams[1].error(grams[0].scale)
    assert pa.certify(statistics=left).identifiable


# Older data count less ----------------------------------------------------------------------------


@both_kinds
def test_forgetting_is_a_weight(make):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((3, 20, 3, 2)), rng.standard_normal((3, 20, 1))
    stats, factors = make(2, 1), (0.5, 0.25, 0.125)
    for x, y, factor in zip(X, Y, factors, strict=True):
        stats.update(x, y, forget=factor)
    # The factor of an update is for what was there before it.
    weights = np.repeat([0.25 * 0.125, 0.125, 1.0], 20)
    expected = make(2, 1).update(X.reshape(60, 3, 2), Y.reshape(60, 1), weights)
    assert stats.total_weight == expected.total_weight
    one, other = (contents(each)[0] for each in (stats, expected))
    for name in one.keys() - {"factor"}:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-12, atol=1e-12)
    if "factor" in one:
        np.testing.assert_allclose(
            one["factor"].T @ one["factor"], other["factor"].T @ other["factor"], atol=1e-12
        )
    assert pa.fit(statistics=stats).risk == pytest.approx(pa.fit(statistics=expected).risk)
    assert stats.down_weighted
    assert "count less" in str(stats)
    assert not expected.down_weighted


@both_kinds
def test_forgetting_with_a_source_and_in_files(make, tmp_path):
    X = np.random.default_rng(0).standard_normal((20, 3, 2))
    stats = make(2, 1).update(X, np.ones(20), chunk="old").update(memory_source(5), forget=0.3)
    alone = make(2, 1).update(memory_source(5))
    assert stats.total_weight == 0.3 * 20 + alone.total_weight
    stats.save(tmp_path / "sums")
    assert pa.load(tmp_path / "sums") == stats
    assert pa.load(tmp_path / "sums").down_weighted
    if make is pa.Moments:
        with pytest.raises(InvalidInput, match=r"multiplied by forget.*again from the data"):
            stats - make(2, 1).update(X, np.ones(20), chunk="old")
    assert (alone + stats.empty()).down_weighted is False
    # Nothing is there to be forgotten.
    assert make(2).update(X, forget=0.5) == make(2).update(X)


@pytest.mark.parametrize("factor", [0.0, -0.5, 1.5, np.nan, np.inf, "half", True, None])
def test_factors_are_checked(factor):
    stats = pa.Moments(2).update(np.ones((2, 3, 2)))
    before = stats.copy()
    with pytest.raises(InvalidInput, match="forget must be"):
        stats.update(np.ones((2, 3, 2)), forget=factor)
    assert stats == before


@both_kinds
def test_a_refused_update_forgets_nothing(make):
    rng = np.random.default_rng(0)
    stats = make(2).update(rng.standard_normal((9, 3, 2)), chunk="a")
    before = stats.copy()
    for X, more in (
        (np.full((2, 3, 2), np.nan), {}),
        (rng.standard_normal((9, 3, 2)), {"chunk": "a"}),
        (np.ones((2, 3, 2)) * [1e-60, 1e60], {}),
    ):
        with pytest.raises(ValueError, match=r"NaN|changed|float64"):
            stats.update(X, forget=0.5, **more)
        assert stats == before


def test_forgotten_sums_vanish_and_prove_nothing():
    """Data that were multiplied by 1e-300 and more are below what float64 holds."""
    rng = np.random.default_rng(0)
    stats = pa.Moments(2).update(rng.standard_normal((30, 3, 2)))
    assert pa.certify(statistics=stats).identifiable
    for _ in range(4):
        stats.update(np.ones((1, 1, 2)), forget=1e-100)
    certificate = pa.certify(statistics=stats)
    assert certificate.verdict == "undecided"
    assert stats.n_rows == 34


def test_rounding_of_forgotten_sums_is_bounded():
    """Against rational numbers: weights are products of the factors, which float64 rounds."""
    rng = np.random.default_rng(3)
    for make in KINDS:
        X, stats, weights = [], make(2), []
        for _ in range(12):
            x = rng.integers(-(2**20), 2**20, (4, 3, 2)) * 2.0**-20
            stats.update(x, forget=0.7)
            weights = [Fraction(0.7) * each for each in weights] + [Fraction(1)] * 4
            X.extend(x)
        gram = gram_of(stats, SPACE)
        assert gram.n_roundings == 48 + 2 * 11
        assert distance(gram, exact_gram(X, weights)) <= gram.error(gram.scale)
        assert pa.certify(statistics=stats).identifiable


@both_kinds
def test_singular_sums_stay_undecided_after_forgetting(make):
    rng = np.random.default_rng(0)
    X = twice(rng, 5)
    stats = make(2)
    for _ in range(30):
        stats.update(X, forget=0.9)
    assert pa.certify(statistics=stats).verdict == "undecided"


# Files --------------------------------------------------------------------------------------------


def test_a_difference_survives_files(tmp_path):
    _, left = taken_out(0, 3.0)
    left.save(tmp_path / "sums")
    loaded = pa.load(tmp_path / "sums")
    assert loaded == left
    np.testing.assert_array_equal(loaded.subtracted, left.subtracted)
    assert (loaded.more_roundings, loaded.subtracted_weight) == (41, 80.0)
    assert pa.certify(statistics=loaded).verdict == "undecided"
    record = left.to_record()
    for field, value in (("more_roundings", -1), ("subtracted_weight", -1.0), ("down_weighted", 1)):
        bad = replace(record, metadata=record.metadata | {field: value})
        with pytest.raises(OSError, match=field):
            pa.Moments.from_record(bad)
    for array in (np.ones(5), -np.ones(6), np.full(6, np.nan), np.full(6, np.inf)):
        with pytest.raises(OSError, match="subtracted"):
            pa.Moments.from_record(replace(record, arrays=record.arrays | {"subtracted": array}))
