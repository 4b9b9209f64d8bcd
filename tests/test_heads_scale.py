"""Heads on the scale of the data: the layer is the prediction, whatever the units."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.heads import GramScale, best_heads, compress, factor
from polyattn.heads.data_scale import SAMPLE_NUMBERS, CoordinateUnits, SampleScale, _exponents
from polyattn.sequences import MODES, SequenceBatch
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

SIZES = [1e-8, 1e-5, 1e3, 1e5, 1e8]


def change(result, X) -> float:
    """The largest change of an output between the layer and the prediction, beside that output."""
    predicted, computed = result.predict(X), result.layer(X)
    axes = tuple(range(predicted.ndim - 1))
    size = np.sqrt(np.mean(predicted**2, axis=axes))
    return float(np.max(np.sqrt(np.mean((predicted - computed) ** 2, axis=axes)) / size))


def tokens_and_targets(n_sequences=120, n_dims=2, n_outputs=2, n_tokens=5, mode="last", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_sequences, n_tokens, n_dims))
    shape = (n_sequences, n_outputs) if mode == "last" else (n_sequences, n_tokens, n_outputs)
    return X, rng.standard_normal(shape)


# The layer is the prediction -------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_one_coordinate_of_another_size(size):
    X, Y = tokens_and_targets()
    plain = pa.fit(X, Y)
    X[..., 1] *= size
    result = pa.fit(X, Y)
    assert result.outcome.name == "unique"
    assert change(result, X) < 1e-11
    assert result.heads.output_error < 1e-11
    assert result.layer.n_heads == plain.layer.n_heads


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n_heads", [1, "auto"])
def test_limited_heads_with_one_coordinate_of_another_size(n_heads, size):
    X, Y = tokens_and_targets()
    plain = pa.fit(X, Y, n_heads=n_heads)
    X[..., 1] *= size
    result = pa.fit(X, Y, n_heads=n_heads)
    assert change(result, X) < 1e-12
    assert result.risk == pytest.approx(np.mean(np.sum((Y - result.layer(X)) ** 2, axis=1)))
    # The problem is not convex: other units may lead to another minimum nearby.
    assert result.risk == pytest.approx(plain.risk, rel=1e-2)


@pytest.mark.parametrize("size", SIZES)
def test_one_output_of_another_size(size):
    X, Y = tokens_and_targets()
    Y[:, 1] *= size
    assert change(pa.fit(X, Y), X) < 1e-11


@pytest.mark.parametrize("statistics", [Moments, TriangularFactor])
@pytest.mark.parametrize("size", [1e-5, 1e5])
def test_heads_from_statistics(statistics, size):
    X, Y = tokens_and_targets()
    X[..., 1] *= size
    result = pa.fit(statistics=statistics(2, 2).update(X, Y))
    assert change(result, X) < 1e-11


@pytest.mark.parametrize("mode", MODES)
def test_few_rows_of_wide_tokens(mode):
    """Too many coefficients for a search: they are factored, in the units of the data."""
    X, Y = tokens_and_targets(30, 41, 1, mode=mode)
    X[..., ::3] *= 1e-4
    result = pa.fit(X, Y, mode)
    assert "factored" in result.heads.sentence
    assert change(result, X) < 1e-11


@pytest.mark.parametrize("spread", [1e-1, 1e-2])
def test_outputs_that_nearly_cancel_are_met(spread):
    """Coordinates nearly alike: large coefficients of both signs, outputs of ordinary size."""
    X, Y = tokens_and_targets()
    X[..., 1] = X[..., 0] + spread * X[..., 1]
    result = pa.fit(X, Y)
    assert result.outcome.name == "unique"
    assert change(result, X) <= max(1e-10, 1e3 * np.finfo(float).eps * result.condition)
    assert result.heads.output_error == pytest.approx(change(result, X), abs=1e-9)


# The tolerance ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "n_heads"), [(1e-3, 2), (1e-5, 2), (1e-7, 2), (3e-9, 2), (1e-12, 1)]
)
def test_a_small_second_head_is_kept(size, n_heads):
    """The tolerance of a well-conditioned fit is far below what a head may weigh."""
    small, large = (pa.data.random_layer(4, mode="last", random_state=seed) for seed in (1, 2))
    layer = pa.LinearAttention(
        np.concatenate([large.attn, small.attn]), np.concatenate([large.value, size * small.value])
    )
    X, _ = tokens_and_targets(n_dims=4)
    result = pa.fit(X, layer(X))
    assert result.layer.n_heads == n_heads
    assert change(result, X) < 1e-10


def test_an_output_of_zeros_is_met():
    X, _ = tokens_and_targets()
    coef = np.stack([np.zeros((3, 2)), np.ones((3, 2))])
    found = compress(coef, data=SampleScale.of(Rows.build(X, None, pa.Form())))
    assert found.output_error <= 1e-10
    np.testing.assert_allclose(found.value[:, :, 0], 0.0, atol=1e-12)


def test_a_head_is_found_in_coefficients_that_the_data_leave_inexact():
    """Condition 1e6: coefficients are known to 1e-10, and a head is looked for to 1e-8."""
    X, _ = tokens_and_targets(400, 4)
    X[..., 3] = X[..., 0] + 1e-2 * X[..., 3]
    layer = pa.data.random_layer(4, mode="last", random_state=3)
    result = pa.fit(X, layer(X))
    assert 1e4 < result.condition < 1e8
    assert result.layer.n_heads == 1
    assert change(result, X) < 1e-8


def test_outputs_ask_for_a_stricter_search():
    """A loss of 1e-4 of the coefficients would be most of an output that nearly cancels."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4, 2))
    X[..., 1] = X[..., 0] * (1 + 1e-3 * X[..., 1])
    scale = SampleScale.of(Rows.build(X, None, pa.Form()))
    coef = rng.standard_normal((1, 3, 2))
    coef[0, 0, 0] = -coef[0].sum() + coef[0, 0, 0]
    loose = compress(coef, tolerance=1e-4, data=scale)
    assert loose.output_error <= 1e-4
    assert "outputs on the data change by" in loose.sentence
    assert compress(coef, tolerance=1e-4).output_error is None


# What is known of the data ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_the_sample_and_the_moments_agree(mode):
    X, _ = tokens_and_targets(20, 3, mode=mode)
    weights = np.arange(20) % 3
    rows = Rows.build(X, None, pa.Form(mode=mode, bias=True), weights)
    sample, gram = SampleScale.of(rows), GramScale.of(Moments.of(rows))
    coef = np.random.default_rng(0).standard_normal((2, 10, 4))
    np.testing.assert_allclose(sample.output_powers(coef), gram.output_powers(coef), rtol=1e-12)
    triangle = GramScale.of(TriangularFactor.of(rows))
    np.testing.assert_allclose(triangle.gram, gram.gram, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("mode", "shape"), [("last", (40_000, 1)), ("causal", (1, 40_000))])
def test_a_sample_is_spread_over_the_data(mode, shape):
    ramp = np.linspace(1.0, 2.0, 40_000).reshape(*shape, 1) * [1.0, 0.5, 2.0, 1.0]
    sample = SampleScale.of(Rows.build(ramp, None, pa.Form(mode=mode)))
    assert sample.sums.size + sample.queries.size <= SAMPLE_NUMBERS
    assert sample.queries.shape[1] > 1000
    np.testing.assert_allclose(sample.queries[0, [0, -1]], [1.0, 2.0], rtol=1e-3)


def test_chosen_sequences():
    batch = SequenceBatch.from_sequences([np.full((n, 2), n) for n in (1, 3, 2, 4)])
    chosen = batch.chosen(np.array([3, 0, 2]))
    assert chosen.lengths.tolist() == [4, 1, 2]
    assert [sequence[0, 0] for sequence in chosen] == [4, 1, 2]


def test_units_are_those_of_the_coordinates():
    X, _ = tokens_and_targets(50, 3)
    X *= [1.0, 2.0**10, 2.0**-20]
    X[:, -1, 1] = 0.0  # a coordinate that no query has
    rows = Rows.build(X, None, pa.Form())
    for data in (SampleScale.of(rows), GramScale.of(Moments.of(rows))):
        require_units(CoordinateUnits.of_inputs(data, 2))


@pytest.mark.parametrize("factor_of_all", [3.0, 0.7, 1e-30])
def test_a_common_factor_changes_no_unit(factor_of_all):
    powers = np.random.default_rng(0).lognormal(0.0, 5.0, 200)
    plain = _exponents(powers)
    assert plain.max() == 0
    np.testing.assert_array_equal(_exponents(factor_of_all * powers), plain)


def require_units(units):
    assert np.all(np.abs(units.values - units.values[0] - [0, 10, -20]) <= 1)
    assert abs(units.queries[0] - units.queries[2] - 20) <= 1
    assert units.queries[1] == 0
    assert not units.outputs.any()


@pytest.mark.parametrize("find", [factor, compress, lambda c, data: best_heads(c, 2, data=data)])
def test_units_are_put_back_exactly(find):
    """Tokens times powers of two: the same heads, times powers of two."""
    rng = np.random.default_rng(0)
    X, coef = rng.standard_normal((50, 4, 3)), rng.standard_normal((1, 6, 3))
    powers = 2.0 ** np.array([0, 7, -9])
    pairs = (powers[:, None] * powers)[np.triu_indices(3)]
    plain = find(coef, data=SampleScale.of(Rows.build(X, None, pa.Form())))
    scale = SampleScale.of(Rows.build(X * powers, None, pa.Form()))
    scaled = find(coef / pairs[:, None] / powers, data=scale)
    assert scaled.n_heads == plain.n_heads
    # The common size of attn and value is a root, which is rounded, and shared as suits them.
    for found, same, factors in (
        (scaled.value, plain.value, powers[:, None]),
        (scaled.attn, plain.attn, powers[:, None] * powers),
    ):
        ratio = found * factors / same
        np.testing.assert_allclose(ratio, ratio.flat[0], rtol=1e-14)


@pytest.mark.parametrize("exponent", [-60, 150])
@pytest.mark.parametrize("given", ["rows", "moments"])
def test_a_limit_of_heads_has_the_ridge_of_the_units_of_the_tokens(exponent, given):
    X, Y = tokens_and_targets(40, n_outputs=1, seed=3)
    ridge = 50.0

    def fitted(X, ridge):
        options = {"n_heads": 1, "ridge": ridge}
        if given == "moments":
            return pa.fit(statistics=Moments(2, 1).update(X, Y), **options)
        return pa.fit(X, Y, **options)

    wanted, found = fitted(X, ridge), fitted(np.ldexp(X, exponent), np.ldexp(ridge, 6 * exponent))
    assert found.risk == pytest.approx(wanted.risk, rel=1e-9)
    error = np.mean((found.predict(np.ldexp(X, exponent)) - Y) ** 2)
    assert found.risk == pytest.approx(error, rel=1e-9)
    assert wanted.risk > fitted(X, 0.0).risk * 1.001  # the ridge counts
