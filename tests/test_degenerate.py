"""Extreme, degenerate and plainly wrong input: the right answer, a clear outcome, or a refusal."""

# ruff: noqa: E501 - a table reads best with one refusal per line

import re

import numpy as np
import pytest

import planted
import polyattn as pa
from polyattn.errors import OutOfRange, PolyattnError
from polyattn.features import sequence_sums, summaries
from polyattn.model import layer as forward
from polyattn.reference import layer as reference
from polyattn.sequences import MODES

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 4, 2))
FRESH = np.random.default_rng(1).standard_normal((7, 5, 2))
SOLVERS = ("primal", "dual", "direct", "iterative")


# Scales of data -----------------------------------------------------------------------------

REPRESENTABLE = [
    # tokens, targets; the coefficients are of size targets / tokens^3
    (1e150, 1e150), (1e-150, 1e-150), (1.0, 1e150), (1.0, 1e-150), (1e100, 1.0), (1e-100, 1.0),
    (1e-100, 1e-150), (1e100, 1e150), (1e50, 1e-150), (1e-50, 1e150), (1e13, 1.0), (1e-13, 1e13),
]  # fmt: skip


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("tokens", "targets"), REPRESENTABLE)
def test_any_scale_gives_the_same_answer(mode, tokens, targets, noise):
    truth, Y = task_of(mode, noise)
    plain = pa.fit(X, Y, mode)
    scaled = pa.fit(tokens * X, targets * Y, mode)
    assert scaled.outcome.name == "unique"
    in_units = scaled.coef * tokens / targets * tokens * tokens
    assert planted.relative_error(in_units, plain.coef) < 1e-12
    # Where the residual is rounding, so is the risk.
    power = np.mean(np.sum(Y.reshape(-1, 2) ** 2, axis=1))
    risk = scaled.risk / targets / targets
    assert risk == pytest.approx(plain.risk, rel=1e-9, abs=1e-25 * power)
    outputs = scaled.predict(tokens * FRESH)
    assert planted.relative_error(outputs / targets, plain.predict(FRESH)) < 1e-12
    if not noise:
        assert planted.relative_error(outputs / targets, truth(FRESH)) < 1e-9


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("tokens", "targets"), [(1e100, 1e100), (1e-100, 1e-100)])
def test_any_scale_on_every_solver(solver, tokens, targets):
    _, Y = task_of("last", 0.1)
    plain, scaled = pa.fit(X, Y, solver=solver), pa.fit(tokens * X, targets * Y, solver=solver)
    in_units = scaled.coef / targets * tokens * tokens * tokens
    # The data are divided by powers of two, so that only 1e100 itself is rounded.
    assert planted.relative_error(in_units, plain.coef) < 1e-9


@pytest.mark.parametrize(("tokens", "targets"), [(1e100, 1e100), (1e-100, 1e-100), (1e150, 1e150)])
def test_any_scale_in_heads(tokens, targets):
    """The layer with its heads, and what a limited number of heads costs."""
    truth, Y = task_of("last", 0.1)
    layer = pa.fit(tokens * X, targets * truth(X)).layer
    assert planted.relative_error(layer(tokens * FRESH) / targets, truth(FRESH)) < 1e-9
    plain = pa.fit(X, Y, n_heads=1)
    scaled = pa.fit(tokens * X, targets * Y, n_heads=1)
    assert plain.gap > 0
    assert scaled.gap / targets / targets == pytest.approx(plain.gap, rel=1e-3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("tokens", "targets", "size"),
    [(1e150, 1.0, "e-45"), (1e-150, 1.0, "e+45"), (1e-120, 1e150, "e+5"), (1e120, 1e-150, "e-5")],
)
def test_coefficients_beyond_float64_are_refused_with_advice(mode, tokens, targets, size):
    _, Y = task_of(mode, 0.1)
    with pytest.raises(OutOfRange) as refusal:
        pa.fit(tokens * X, targets * Y, mode)
    message = str(refusal.value)
    assert "coefficients" in message
    assert size in message
    assert "float64" in message
    assert "multiply the inputs or the targets" in message


def test_a_ridge_beside_huge_or_tiny_tokens():
    """A penalty keeps its meaning in the units of the data, or is refused."""
    _, Y = task_of("last", 0.1)
    plain = pa.fit(X, Y, ridge=1.0)
    for scale in (1e-40, 1e40):
        scaled = pa.fit(scale * X, Y, ridge=scale**3 * scale**3)
        assert planted.relative_error(scaled.coef * scale**3, plain.coef) < 1e-9
        assert scaled.ridge == pytest.approx(scale**3 * scale**3)
        assert scaled.outcome.name == "regularised"
    with pytest.raises(OutOfRange, match=r"ridge.*rescale X"):
        pa.fit(1e-100 * X, Y, ridge=1.0)


def test_a_ridge_that_is_nothing_beside_the_data_is_still_reported():
    """1e600 + 1: the answer is that of ridge 0, but what was asked for is not forgotten."""
    _, Y = task_of("last", 0.1)
    result = pa.fit(1e100 * X, 1e100 * Y, ridge=1.0)
    plain = pa.fit(X, Y)
    assert planted.relative_error(result.coef * 1e200, plain.coef) < 1e-9
    assert result.ridge == 1.0


@pytest.mark.parametrize("weight", [1e-300, 1e-150, 1e150, 1e300])
@pytest.mark.parametrize("solver", SOLVERS)
def test_weights_of_any_scale(solver, weight):
    _, Y = task_of("last", 0.1)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, len(X))
    plain = pa.fit(X, Y, sample_weight=weights, solver=solver)
    scaled = pa.fit(X, Y, sample_weight=weight * weights, solver=solver)
    # Conjugate gradients end where rounding lets them, so their last digits differ.
    digits = 1e-7 if solver == "iterative" else 1e-12
    assert planted.relative_error(scaled.coef, plain.coef) < digits
    assert scaled.risk == pytest.approx(plain.risk, rel=1e-9)


@pytest.mark.parametrize("mode", MODES)
def test_one_tiny_coordinate(mode):
    """Its cubes underflow beside the others, so the optimum over them cannot be known."""
    tiny = X * np.array([1.0, 1e-150])
    truth, _ = task_of(mode, 0.0)
    with pytest.raises(OutOfRange, match=r"coordinates of X.*e-1\d\d.*Rescale"):
        pa.fit(tiny, truth(tiny), mode)
    with pytest.raises(OutOfRange, match=r"constant of bias"):
        pa.fit(1e-100 * X, truth(X), mode, bias=True)
    bearable = X * np.array([1.0, 1e-40])
    result = pa.fit(bearable, truth(bearable), mode)
    assert planted.relative_error(result.predict(bearable), truth(bearable)) < 1e-9


@pytest.mark.parametrize("mode", MODES)
def test_one_huge_sequence(mode):
    mixed = X * np.where(np.arange(len(X)) == 3, 1e40, 1.0)[:, None, None]
    truth, _ = task_of(mode, 0.0)
    result = pa.fit(mixed, truth(mixed), mode)
    # Beside 1e120 the other rows are nothing; what was huge is met.
    outputs = result.predict(mixed)
    assert planted.relative_error(outputs[3], truth(mixed)[3]) < 1e-9
    assert np.all(np.isfinite(outputs))


@pytest.mark.parametrize("value", [5e-324, 1e-310, np.finfo(float).tiny])
def test_subnormal_numbers(value):
    """Subnormal tokens with targets to match, and subnormal targets."""
    tokens = np.array([1.0, 2.0, -1.0, 3.0]).reshape(4, 1, 1)
    with pytest.raises(OutOfRange, match="coefficients"):
        pa.fit(value * tokens, np.ones(4))
    zero = pa.fit(value * tokens, np.zeros(4))
    assert zero.coef == 0.0
    try:
        small = pa.fit(tokens, value * tokens[:, 0, 0] ** 3)
    except OutOfRange as refusal:
        assert "coefficients" in str(refusal)  # noqa: PT017
    else:
        assert small.coef[0, 0, 0] == pytest.approx(value, rel=0.5)


# Kinds of numbers ---------------------------------------------------------------------------

DTYPES = {
    "float32": (np.float32(3) * X.astype(np.float32)),
    "float32 extremes": (1e38 * X / np.max(np.abs(X))).astype(np.float32),
    "float16": (1e4 * X / np.max(np.abs(X))).astype(np.float16),
    "int8 extremes": RNG.choice(np.array([-128, -1, 0, 1, 127], np.int8), X.shape),
    # Multiples of 2^11 are float64, however large; others are refused (test_large_integers).
    "int64 huge": RNG.integers(-(2**52), 2**52, X.shape, np.int64) << 11,
    "uint64 huge": RNG.integers(2**52, 2**53, X.shape, np.uint64) << np.uint64(11),
    "bool": X > 0,
    "big endian": X.astype(">f4"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DTYPES)
def test_every_real_dtype_is_its_float64(name, mode):
    given_tokens = DTYPES[name]
    as_float = given_tokens.astype(np.float64)
    rows = (len(X),) if mode == "last" else X.shape[:2]
    targets = np.random.default_rng(2).integers(-100, 100, (*rows, 2))
    expected = pa.fit(as_float, targets.astype(float), mode)
    for kind in (np.int16, np.float32, np.int64):
        found = pa.fit(given_tokens, targets.astype(kind), mode)
        np.testing.assert_array_equal(found.coef, expected.coef)
        np.testing.assert_array_equal(found.predict(given_tokens), expected.predict(as_float))
    assert given_tokens.dtype == DTYPES[name].dtype


def test_huge_integer_targets():
    cubes = np.array([1, 2, 3, -4]).reshape(4, 1, 1)
    result = pa.fit(cubes, np.array([1, 8, 27, -64], dtype=np.int64) * 2**55)
    assert result.coef[0, 0, 0] == pytest.approx(2.0**55, rel=1e-12)


# Nothing to learn ---------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_zero_tokens_explain_nothing(solver, mode, ridge):
    _, Y = task_of(mode, 0.1)
    result = pa.fit(0 * X, Y, mode, ridge, solver=solver)
    assert np.all(result.coef == 0)
    assert result.risk == pytest.approx(np.mean(np.sum(Y.reshape(-1, 2) ** 2, axis=1)))
    assert np.all(result.predict(X) == 0)
    assert result.layer.n_heads == 1
    if ridge == 0 and solver != "iterative":
        assert (result.rank, result.outcome.name) == (0, "minimum_norm")


@pytest.mark.parametrize("make", [pa.Moments, pa.TriangularFactor])
def test_zero_tokens_in_statistics(make):
    _, Y = task_of("last", 0.1)
    result = pa.fit(statistics=make(2, 2).update(0 * X, Y))
    assert np.all(result.coef == 0)
    assert (result.rank, result.outcome.name) == (0, "minimum_norm")
    assert result.risk == pytest.approx(np.mean(np.sum(Y**2, axis=1)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_zero_targets_are_met_by_zero(solver, mode):
    _, Y = task_of(mode, 0.0)
    for tokens in (X, 1e100 * X, 0 * X):
        result = pa.fit(tokens, 0 * Y, mode, solver=solver)
        assert np.all(result.coef == 0)
        assert result.risk == 0
        assert result.layer.n_heads == 1


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
@pytest.mark.parametrize("mode", MODES)
def test_one_number(mode, solver):
    """N = n = d = e = 1: y = c x^3."""
    result = pa.fit(np.full((1, 1, 1), 2.0), np.full((1,) if mode == "last" else (1, 1), 24.0),
                    mode, solver=solver)  # fmt: skip
    assert result.coef[0, 0, 0] == pytest.approx(3.0, rel=1e-14)
    assert result.risk == pytest.approx(0.0, abs=1e-26)
    assert result.predict(np.full((1, 1, 1), 3.0)).ravel()[0] == pytest.approx(81.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("d", [1, 2, 4])
def test_single_tokens(mode, d):
    """n = 1: only the symmetric cubic form is seen; rank C(d+2, 3) of d^2 (d+1) / 2."""
    rng = np.random.default_rng(d)
    tokens = rng.standard_normal((60, 1, d))
    truth = pa.data.random_layer(d, mode=mode, random_state=d)
    result = pa.fit(tokens, truth(tokens), mode)
    assert result.rank == d * (d + 1) * (d + 2) // 6
    assert result.outcome.name == ("unique" if d == 1 else "minimum_norm")
    fresh = rng.standard_normal((5, 1, d))
    assert planted.relative_error(result.predict(fresh), truth(fresh)) < 1e-9


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
@pytest.mark.parametrize("mode", MODES)
def test_one_sequence_is_met_exactly(mode, solver):
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((1, 2, 4))
    targets = rng.standard_normal((1, 3) if mode == "last" else (1, 2, 3))
    result = pa.fit(tokens, targets, mode, solver=solver)
    assert planted.relative_error(result.predict(tokens), targets) < 1e-9
    assert result.risk < 1e-18
    assert result.rank in ((1 if mode == "last" else 2), None)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_sequence_again_and_again(mode):
    rng = np.random.default_rng(0)
    tokens = np.repeat(rng.standard_normal((1, 2, 2)), 50, axis=0)
    targets = rng.standard_normal((50, 1) if mode == "last" else (50, 2, 1))
    result = pa.fit(tokens, targets, mode)
    mean = targets.mean(axis=0)
    assert planted.relative_error(result.predict(tokens[0]), mean) < 1e-9
    assert result.outcome.name == "minimum_norm"


@pytest.mark.parametrize("mode", MODES)
def test_constant_tokens(mode):
    tokens = np.full((30, 3, 2), 7.0)
    targets = np.random.default_rng(0).standard_normal((30, 1) if mode == "last" else (30, 3, 1))
    result = pa.fit(tokens, targets, mode)
    assert result.outcome.name == "minimum_norm"
    assert "rank" in str(result.outcome)
    assert result.rank == 1
    if mode != "causal":
        np.testing.assert_allclose(result.predict(tokens[0]), targets.mean(), rtol=1e-9)


# Layers -------------------------------------------------------------------------------------

LAYER_SCALES = [
    # attn, value, tokens; outputs are of size attn value tokens^3
    (1e150, 1e-150, 1.0), (1e-150, 1e150, 1e50), (1e-150, 1e-150, 1e100), (1e150, 1e150, 1e-100),
    (1e-150, 1.0, 1e100), (1.0, 1e150, 1e-100), (1.0, 1.0, 1e100), (1.0, 1.0, 1e-100),
    (1e-150, 1e-150, 1.0), (1e-150, 1e-150, 1e150), (1e150, 1e100, 1e-150),
]  # fmt: skip


@pytest.mark.parametrize("n_heads", [1, 30])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("attn", "value", "tokens"), LAYER_SCALES)
def test_layers_of_any_scale(mode, attn, value, tokens, n_heads):
    rng = np.random.default_rng(0)
    A, V = rng.standard_normal((n_heads, 2, 2)), rng.standard_normal((n_heads, 2, 3))
    plain = pa.LinearAttention(A, V, mode)
    scaled = pa.LinearAttention(attn * A, value * V, mode)
    exponent = round(np.log10(attn) + np.log10(value) + 3 * np.log10(tokens))
    outputs = scaled(tokens * FRESH) / 10.0**exponent
    assert planted.relative_error(outputs, plain(FRESH)) < 1e-12


@pytest.mark.parametrize("mode", MODES)
def test_heads_of_opposite_scales(mode):
    """1e150 * 1e-150 in one head, the reverse in the other: both count in full."""
    rng = np.random.default_rng(0)
    A, V = rng.standard_normal((2, 2, 2)), rng.standard_normal((2, 2, 3))
    scale = np.array([1e150, 1e-150])[:, None, None]
    plain, scaled = pa.LinearAttention(A, V, mode), pa.LinearAttention(A * scale, V / scale, mode)
    assert planted.relative_error(scaled(FRESH), plain(FRESH)) < 1e-12
    assert pa.same_function(plain, scaled)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("attn", "value", "tokens"),
    [(1e150, 1e150, 1e50), (1.0, 1.0, 1e150), (1e-150, 1e-150, 1e-50), (1.0, 1.0, 1e-150)],
)
def test_outputs_beyond_float64_are_refused(mode, attn, value, tokens):
    layer = pa.LinearAttention(attn * np.eye(2), value * np.eye(2), mode)
    with pytest.raises(OutOfRange, match=r"outputs.*1e[+-]\d{3}.*float64.*multiply"):
        layer(tokens * FRESH)


def test_extreme_layers_are_compared():
    big, tiny = (pa.LinearAttention(s * np.eye(2), s * np.eye(2)) for s in (1e150, 1e-150))
    assert pa.same_function(big, big)
    assert pa.same_function(tiny, tiny)
    assert not pa.same_function(big, tiny)
    size = np.linalg.norm(big.coef / 1e300) * 1e300
    assert pa.coefficient_distance(big, tiny) == pytest.approx(size)
    almost = pa.LinearAttention((1 + 1e-6) * tiny.attn, tiny.value)
    assert not pa.same_function(tiny, almost)
    assert pa.same_function(tiny, almost, tolerance=1e-5)


def test_equal_layers_have_equal_hashes():
    plus, minus = (pa.LinearAttention([[zero]], [[1.0]]) for zero in (0.0, -0.0))
    assert plus == minus
    assert hash(plus) == hash(minus)


# Long sequences -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_very_long_sequence(mode):
    """n = 200000: linear time, no n x n scores (they would take 320 GB)."""
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((200_000, 2)) / 500
    A, V = rng.standard_normal((2, 2, 2)), rng.standard_normal((2, 2, 2))
    layer = pa.LinearAttention(A, V, mode)
    outputs = layer(tokens)
    grams = np.cumsum(tokens[:, :, None] * tokens[:, None, :], axis=0)
    seen = grams if mode == "causal" else grams[-1:]
    queries = tokens[-1:] if mode == "last" else tokens
    expected = np.einsum("tl,hlk,tkj,hja->ta", queries, A, np.broadcast_to(
        seen, (len(queries), 2, 2)), V, optimize=True)  # fmt: skip
    assert planted.relative_error(outputs, expected[0] if mode == "last" else expected) < 1e-11
    if mode != "last":
        result = pa.fit(tokens[None], outputs[None], mode)
        assert planted.relative_error(result.predict(tokens), outputs) < 1e-9


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [31, 32, 33, 63, 64, 65, 127, 128, 129])
def test_lengths_around_every_block(monkeypatch, mode, length):
    """Chunks of 32, and token blocks shrunk to 64 and 128."""
    monkeypatch.setattr(forward, "BLOCK_TOKENS", 128)
    monkeypatch.setattr(sequence_sums, "TOKEN_BLOCK", 64)
    monkeypatch.setattr(summaries, "BLOCK_NUMBERS", 1)
    monkeypatch.setattr(summaries, "MIN_BLOCK_ROWS", 64)
    rng = np.random.default_rng(length)
    tokens = [rng.standard_normal((length, 2)) for _ in range(3)] + [rng.standard_normal((5, 2))]
    A, V = rng.standard_normal((1, 2, 2)), rng.standard_normal((1, 2, 1))
    layer = pa.LinearAttention(A, V, mode)
    expected = [np.atleast_2d(reference.forward(A, V, x, mode)) for x in tokens]
    outputs = layer(tokens)
    targets = outputs if mode == "last" else list(outputs)
    found = pa.fit(tokens, targets, mode, solver="primal")
    for i, wanted in enumerate(expected):
        assert planted.relative_error(np.atleast_2d(outputs[i]), wanted) < 1e-11
        assert planted.relative_error(np.atleast_2d(found.predict(tokens)[i]), wanted) < 1e-6


# What is refused ----------------------------------------------------------------------------

ONE = np.ones((3, 4, 2))
TWO = np.ones((3, 2))
FITTED = pa.fit(X, X[:, -1])
LAYER = pa.LinearAttention(np.eye(2), np.eye(2))


def with_bad(value, like):
    """A copy with one bad number."""
    array = np.array(like, dtype=np.result_type(like, type(value)))
    array.flat[-1] = value
    return array


REFUSED = {
    # name: (call, type, words that the message must hold)
    "X nan": (lambda: pa.fit(with_bad(np.nan, ONE), TWO), ValueError, "X", "NaN", "1 of 24", "remove or impute"),
    "X inf": (lambda: pa.fit(with_bad(np.inf, ONE), TWO), ValueError, "X", "infinity", "1 of 24"),
    "X complex": (lambda: pa.fit(ONE * 1j, TWO), TypeError, "X", "complex", "Convert"),
    "X text": (lambda: pa.fit([["a b c"]], TWO), (TypeError, ValueError), "X", "text", "Convert"),
    "X text array": (lambda: pa.fit(ONE.astype(str), TWO), TypeError, "X", "text", "Convert"),
    "X objects": (lambda: pa.fit(np.full(ONE.shape, None), TWO), TypeError, "X", "objects", "Convert"),
    "X dict": (lambda: pa.fit({"x": 1}, TWO), TypeError, "X"),
    "X masked": (lambda: pa.fit(np.ma.masked_array(ONE), TWO), TypeError, "X", "masked", "impute"),
    "X empty": (lambda: pa.fit(np.ones((0, 4, 2)), np.ones((0, 2))), ValueError, "X", "empty", "at least one"),
    "X empty list": (lambda: pa.fit([], []), ValueError, "X", "empty", "at least one"),
    "X no tokens": (lambda: pa.fit(np.ones((3, 0, 2)), TWO), ValueError, "X", "zero tokens"),
    "X no tokens in one": (lambda: pa.fit([np.ones((2, 2)), np.ones((0, 2))], TWO[:2]), ValueError, "sequence 1", "0 tokens"),
    "X no coordinates": (lambda: pa.fit(np.ones((3, 4, 0)), TWO), ValueError, "coordinate"),
    "X ragged widths": (lambda: pa.fit([np.ones((2, 2)), np.ones((2, 3))], TWO[:2]), ValueError, r"X\[1\]", "3", "same number"),
    "X matrix": (lambda: pa.fit(np.ones((4, 2)), TWO), ValueError, "X", r"\(4, 2\)", "n_sequences, n_tokens, n_dims"),
    "X missing": (lambda: pa.fit(None, TWO), ValueError, "X and Y"),
    "Y missing": (lambda: pa.fit(ONE), ValueError, "X and Y"),
    "Y nan": (lambda: pa.fit(ONE, with_bad(np.nan, TWO)), ValueError, "Y", "NaN", "1 of 6"),
    "Y inf": (lambda: pa.fit(ONE, with_bad(-np.inf, TWO)), ValueError, "Y", "infinity"),
    "Y complex": (lambda: pa.fit(ONE, TWO * 1j), TypeError, "Y", "complex"),
    "Y text": (lambda: pa.fit(ONE, ["a", "b", "c"]), TypeError, "Y", "text"),
    "Y objects": (lambda: pa.fit(ONE, np.full(TWO.shape, None)), TypeError, "Y", "objects"),
    "Y count": (lambda: pa.fit(ONE, TWO[:2]), ValueError, "3 sequences", "2 targets", "one target per sequence"),
    "Y count causal": (lambda: pa.fit(ONE, ONE[:2], "causal"), ValueError, "3 sequences", "Y has 2"),
    "Y per token for last": (lambda: pa.fit(ONE, ONE), ValueError, "'last'", r"\(3, 4, 2\)", "mode='causal'"),
    "Y per sequence for causal": (lambda: pa.fit(ONE, np.ones(3), "causal"), ValueError, "Y", r"\(3,\)", "mode='last'"),
    "Y matrix for full": (lambda: pa.fit(ONE, TWO, "full"), ValueError, "4 tokens", "2 targets"),
    "Y lengths": (lambda: pa.fit(ONE, np.ones((3, 5, 1)), "full"), ValueError, "4 tokens", "5 targets"),
    "Y no outputs": (lambda: pa.fit(ONE, np.ones((3, 0))), ValueError, "Y", "zero outputs"),
    "ridge negative": (lambda: pa.fit(ONE, TWO, ridge=-1e-9), ValueError, "ridge", "not negative", "-1e-09"),
    "ridge text": (lambda: pa.fit(ONE, TWO, ridge="auto"), TypeError, "ridge", "'auto'", "'loo'"),
    "mode": (lambda: pa.fit(ONE, TWO, mode="bidirectional"), ValueError, "mode", "'bidirectional'", "'last'", "'causal'", "'full'"),
    "mode none": (lambda: pa.fit(ONE, TWO, mode=None), ValueError, "mode", "None"),
    "solver": (lambda: pa.fit(ONE, TWO, solver="adam"), ValueError, "solver", "'adam'", "'auto'", "'primal'"),
    "n_heads zero": (lambda: pa.fit(ONE, TWO, n_heads=0), ValueError, "n_heads", "0", ">= 1"),
    "n_heads negative": (lambda: pa.fit(ONE, TWO, n_heads=-2), ValueError, "n_heads", "-2"),
    "n_heads fraction": (lambda: pa.fit(ONE, TWO, n_heads=1.5), (ValueError, TypeError), "n_heads", "1.5"),
    "n_heads bool": (lambda: pa.fit(ONE, TWO, n_heads=True), (ValueError, TypeError), "n_heads", "True"),
    "n_heads text": (lambda: pa.fit(ONE, TWO, n_heads="few"), (ValueError, TypeError), "n_heads", "'few'", "'auto'"),
    "bias text": (lambda: pa.fit(ONE, TWO, bias="no"), (ValueError, TypeError), "bias", "'no'"),
    "bias number": (lambda: pa.fit(ONE, TWO, bias=2), (ValueError, TypeError), "bias", "2"),
    "random_state text": (lambda: pa.fit(ONE, TWO, random_state="a"), (ValueError, TypeError), "random_state", "'a'"),
    "random_state negative": (lambda: pa.fit(ONE, TWO, random_state=-1), ValueError, "random_state", "-1"),
    "weights shape": (lambda: pa.fit(ONE, TWO, sample_weight=[1.0]), ValueError, "sample_weight", r"\(3,\)", r"\(1,\)"),
    "weights negative": (lambda: pa.fit(ONE, TWO, sample_weight=[1, 1, -1]), ValueError, "sample_weight", "negative", "-1"),
    "weights zero": (lambda: pa.fit(ONE, TWO, sample_weight=[0, 0, 0]), ValueError, "sample_weight", "zero"),
    "weights nan": (lambda: pa.fit(ONE, TWO, sample_weight=[1, 1, np.nan]), ValueError, "sample_weight", "NaN"),
    "weights beyond": (lambda: pa.fit(ONE, TWO, sample_weight=[1e308] * 3), ValueError, "sample_weight"),
    "weights vanishing": (lambda: pa.fit(1e-5 * ONE, TWO, sample_weight=[1e-290] * 3), ValueError, "sample_weight", "1e-290", "constant"),
    "weights exploding": (lambda: pa.fit(1e5 * ONE, TWO, sample_weight=[1e290] * 3), ValueError, "sample_weight", r"1e\+290", "constant"),
    "statistics and data": (lambda: pa.fit(ONE, TWO, statistics=pa.Moments(2, 2)), ValueError, "either X and Y, or statistics"),
    "statistics empty": (lambda: pa.fit(statistics=pa.Moments(2, 2)), ValueError, "empty", "update"),
    "statistics wrong": (lambda: pa.fit(statistics=np.eye(2)), TypeError, "statistics", "Moments", "ndarray"),
    "statistics solver": (lambda: pa.fit(statistics=pa.Moments(2, 2).update(ONE, TWO), solver="dual"), ValueError, "solver", "'primal'", "'dual'", "needs X and Y"),
    # layers
    "attn nan": (lambda: pa.LinearAttention(with_bad(np.nan, np.eye(2)), np.eye(2)), ValueError, "attn", "NaN"),
    "value inf": (lambda: pa.LinearAttention(np.eye(2), with_bad(np.inf, np.eye(2))), ValueError, "value", "infinity"),
    "attn complex": (lambda: pa.LinearAttention(1j * np.eye(2), np.eye(2)), TypeError, "attn", "complex"),
    "attn text": (lambda: pa.LinearAttention([["a"]], [[1.0]]), TypeError, "attn", "text"),
    "attn objects": (lambda: pa.LinearAttention(np.full((2, 2), None), np.eye(2)), TypeError, "attn", "objects"),
    "attn not square": (lambda: pa.LinearAttention(np.ones((1, 2, 3)), np.ones((1, 2, 1))), ValueError, "attn", r"\(H, d, d\)", r"\(1, 2, 3\)"),
    "attn flat": (lambda: pa.LinearAttention(np.ones(4), np.eye(2)), ValueError, "attn", r"\(4,\)"),
    "attn empty": (lambda: pa.LinearAttention(np.ones((0, 2, 2)), np.ones((0, 2, 1))), ValueError, "attn", "at least one head"),
    "heads differ": (lambda: pa.LinearAttention(np.ones((2, 2, 2)), np.ones((3, 2, 1))), ValueError, "attn", "value", "agree", r"\(3, 2, 1\)"),
    "widths differ": (lambda: pa.LinearAttention(np.eye(2), np.eye(3)), ValueError, "attn", "value", "agree"),
    "layer mode": (lambda: pa.LinearAttention(np.eye(2), np.eye(2), "prefix"), ValueError, "mode", "'prefix'"),
    "layer bias": (lambda: pa.LinearAttention([[1.0]], [[1.0]], bias=True), ValueError, "bias", "2"),
    # prediction
    "layer width": (lambda: LAYER(np.ones((3, 4, 5))), ValueError, "X", "2 coordinates", "got 5"),
    "layer width of one": (lambda: LAYER(np.ones((4, 5))), ValueError, "X", "2 coordinates", "got 5"),
    "layer nan": (lambda: LAYER(with_bad(np.nan, ONE)), ValueError, "X", "NaN"),
    "layer text": (lambda: LAYER("tokens"), TypeError, "X", "text"),
    "layer flat": (lambda: LAYER(np.ones(2)), ValueError, "X", r"\(2,\)"),
    "layer empty": (lambda: LAYER([]), ValueError, "X", "empty"),
    "predict width": (lambda: FITTED.predict(np.ones((3, 4, 5))), ValueError, "X", "2 coordinates", "got 5"),
    "predict nan": (lambda: FITTED.predict(with_bad(np.nan, ONE)), ValueError, "X", "NaN"),
    "predict complex": (lambda: FITTED.predict(ONE * 1j), TypeError, "X", "complex"),
    # comparison
    "compare modes": (lambda: pa.same_function(LAYER, pa.LinearAttention(np.eye(2), np.eye(2), "full")), ValueError, "mode", "'last'", "'full'"),
    "compare widths": (lambda: pa.coefficient_distance(LAYER, pa.LinearAttention(np.eye(3), np.eye(3))), ValueError, "n_dims", "2", "3"),
    "compare tolerance": (lambda: pa.same_function(LAYER, LAYER, -1.0), ValueError, "tolerance", "-1.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_argument_what_came_and_what_to_do(name):
    call, kind, *words = REFUSED[name]
    with pytest.raises(kind) as refusal:
        call()
    assert isinstance(refusal.value, PolyattnError), repr(refusal.value)
    message = str(refusal.value)
    for word in words:
        assert re.search(word, message), (word, message)
    assert message.endswith(".")


# Helpers ------------------------------------------------------------------------------------


def task_of(mode, noise):
    """A random layer and its targets on X, with noise."""
    truth = pa.data.random_layer(2, 2, 2, mode, random_state=3)
    Y = truth(X)
    return truth, Y + noise * np.random.default_rng(4).standard_normal(Y.shape)


@pytest.mark.parametrize("options", [{}, {"n_heads": 1}, {"ridge": "loo"}])
def test_a_risk_that_float64_cannot_hold_is_refused(options):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((100, 4, 2)), rng.standard_normal((100, 2))
    assert np.isfinite(pa.fit(X, 1e150 * Y, **options).risk)
    with pytest.raises(OutOfRange, match="the risk"):
        pa.fit(X, 1e160 * Y, **options)


def test_an_audit_of_outputs_whose_squares_overflow_is_refused():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((100, 4, 2)), rng.standard_normal((100, 2))
    layer = pa.LinearAttention(*(1e80 * rng.standard_normal((2, 1, 2, 2))))
    with pytest.raises(OutOfRange, match="the risk"):
        pa.audit(layer, X, Y)
