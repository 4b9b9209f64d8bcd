"""Statistics of data of any size: powers of two, and eigenvalues that a factor keeps."""

from dataclasses import replace

import numpy as np
import pytest

import planted
import polyattn as pa
from polyattn.errors import FileFormatError, OutOfRange
from polyattn.reference import erm, layer
from statistics_cases import (
    KINDS,
    assert_close,
)

SCALES = (0.0, 1e-150, 1e-60, 1.0, 1e60, 1e150)


@pytest.mark.parametrize("make", KINDS)
def test_sums_at_powers_of_two_that_differ_a_little_merge_exactly(make):
    """Both parts count: each power that is taken out must come back in every sum."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 30, 3, 2)), rng.standard_normal((2, 30, 2))
    scales = (2.0**60, 2.0**62)
    a, b = (make(2, 2).update(s * x, s * y) for s, x, y in zip(scales, X, Y, strict=True))
    assert a.token_exponent != b.token_exponent
    both = make(2, 2).update(np.concatenate([X[0] / 4, X[1]]), np.concatenate([Y[0] / 4, Y[1]]))
    for merged in (a + b, b + a):
        found, expected = pa.fit(statistics=merged), pa.fit(statistics=both)
        assert planted.relative_error(found.coef * 2.0**124, expected.coef) < 1e-11
        assert found.risk == pytest.approx(expected.risk * 2.0**124, rel=1e-11)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    "field", ["n_dims", "n_outputs", "n_rows", "n_positive", "n_sequences", "total_weight"]
)
def test_counts_below_zero_are_refused(make, field):
    record = make(2, 1).update(np.ones((3, 2, 2)), np.ones(3)).to_record()
    wrong = replace(record, metadata=record.metadata | {field: -1})
    with pytest.raises(FileFormatError, match=f"metadata.{field}"):
        make.from_record(wrong)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("first", SCALES)
@pytest.mark.parametrize("second", SCALES)
def test_merging_across_scales_keeps_the_larger(make, first, second):
    """Six powers beside 1 a scale of 1e-60 is nothing; alone it counts in full."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 30, 3, 2)), rng.standard_normal((2, 30, 1))
    a, b = (make(2, 1).update(s * x, s * y) for s, x, y in zip((first, second), X, Y, strict=True))
    largest = max(first, second)
    expected = make(2, 1)
    for scale, x, y in zip((first, second), X, Y, strict=True):
        expected.update((scale / largest if largest else 0.0) * x, (scale / (largest or 1.0)) * y)
    for merged in (a + b, b + a, make(2, 1).update(first * X[0], first * Y[0]) + b):
        ours = pa.fit(statistics=merged)
        reference = pa.fit(statistics=expected)
        unit = largest**-2 if largest else 1.0
        assert planted.relative_error(ours.coef / unit, reference.coef) < 1e-9
        assert ours.outcome.name == reference.outcome.name


@pytest.mark.parametrize("make", KINDS)
def test_constants_beside_zero_tokens_follow_the_power_of_two(make):
    """Sums of zero tokens hold the constant of an intercept, in units of their own."""
    form, rng = pa.Form(intercept=True), np.random.default_rng(0)
    X, Y = 2.0**50 * rng.standard_normal((50, 3, 1)), 5.0 + rng.standard_normal(50)
    zero, others = np.zeros((30, 3, 1)), 7.0 + rng.standard_normal(30)
    together = make(1, 1, form=form).update([*X, *zero], [*Y, *others])
    empty = make(1, 1, form=form).update(zero, others)
    expected = pa.fit(statistics=together)
    for merged in (empty + make(1, 1, form=form).update(X, Y), empty.copy().update(X, Y)):
        found = pa.fit(statistics=merged)
        assert found.coef[0, -1, -1] == pytest.approx(expected.coef[0, -1, -1], rel=1e-9)
        assert found.risk == pytest.approx(expected.risk, rel=1e-9)


@pytest.mark.parametrize("make", KINDS)
def test_exponents_follow_the_largest_data(make):
    one = np.ones((1, 1, 1))
    stats = make(1, 1)
    assert (stats.token_exponent, stats.target_exponent) == (None, None)
    stats.update(0 * one, [0.0])
    assert (stats.token_exponent, stats.target_exponent) == (None, None)
    stats.update(1e-100 * one, [1e-100])
    tiny = stats.token_exponent
    assert tiny < -300
    assert stats.target_exponent == tiny
    stats.update(one, [1.0])
    assert (stats.token_exponent, stats.target_exponent) == (0, 0)
    stats.update(1e-100 * one, [1e-100])
    assert (stats.token_exponent, stats.target_exponent) == (0, 0)
    stats.update(1e100 * one, [1.0])
    assert stats.token_exponent > 300
    assert stats.target_exponent == 0


@pytest.mark.parametrize("scale", [1e-50, 1e50])
def test_moments_of_scaled_data_in_true_units(scale):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((9, 3, 2)), rng.standard_normal((9, 2))
    plain = pa.Moments(2, 2).update(X, Y)
    scaled = pa.Moments(2, 2).update(scale * X, Y / scale**2)
    assert_close(scaled.gram / scale**3 / scale**3, plain.gram)
    assert_close(scaled.cross / scale, plain.cross)
    assert_close(scaled.target_gram * scale**2 * scale**2, plain.target_gram)


def test_moments_that_float64_cannot_hold_are_refused_with_advice():
    stats = pa.Moments(1, 1).update(np.full((2, 1, 1), 1e100), [1.0, 2.0])
    with pytest.raises(OutOfRange, match=r"moments.*1e\+60\d.*multiply"):
        stats.gram  # noqa: B018


@pytest.mark.parametrize("delta", [1e-4, 1e-10])
def test_small_eigenvalues_survive_in_the_factor_only(delta):
    """d = 1 + bias: features (x^2 + 1) x etc.; sequences chosen so that psi takes two values.

    With tokens +-1 and a weight delta^2 on the second, the Gram has the eigenvalues of
    diag(1, delta^2) times 8: 1e-20 of the largest for delta = 1e-10.
    """
    X = np.array([[[1.0]], [[-1.0]]])
    weights = np.array([1.0, delta**2])
    psi = erm.design([layer.with_constant(x) for x in X], "last") * np.sqrt(weights)[:, None]
    truth = np.linalg.svd(psi, compute_uv=False)[:2] ** 2
    factor = pa.TriangularFactor(1, 0, bias=True)
    gram = pa.Moments(1, 0, bias=True)
    for x, weight in zip(X, weights, strict=True):
        factor = factor + pa.TriangularFactor(1, 0, bias=True).update(x[None], None, [weight])
        gram = gram + pa.Moments(1, 0, bias=True).update(x[None], None, [weight])
    found = np.linalg.svd(factor.scaled_factor(), compute_uv=False)[:2] ** 2
    assert found[1] / found[0] == pytest.approx(
        truth[1] / truth[0], rel=1e-6 if delta < 1e-6 else 1e-9
    )
    assert found[1] / found[0] == pytest.approx(delta**2, rel=1.0)
    eigenvalues = np.sort(np.linalg.eigvalsh(gram.gram))[::-1][:2]
    survives = abs(eigenvalues[1] / eigenvalues[0] / (truth[1] / truth[0]) - 1.0) < 0.5
    assert survives == (delta > 1e-8)
