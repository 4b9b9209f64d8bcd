"""Ready maps of tokens: what they compute, at every size of tokens, and how they are stored."""

import json
from fractions import Fraction
from itertools import combinations_with_replacement
from math import cos, exp, log, pi, prod, sqrt

import numpy as np
import pytest

from polyattn.errors import FileFormatError, InvalidInput, OutOfRange, PolyattnError
from polyattn.form import maps

WEIGHTS = np.array([[1.0, -2.0, 0.5], [0.25, 1.0, 3.0]])
MAPS = {
    "polynomial": lambda: maps.polynomial(3),
    "monomials": lambda: maps.polynomial(2, include_lower=False),
    "elu1": maps.elu1,
    "random_fourier": lambda: maps.random_fourier(7, 2.0, 5),
    "hedgehog": maps.hedgehog,
    "trained": lambda: maps.hedgehog(WEIGHTS),
    "normalised": maps.normalised,
}
TOKENS = np.random.default_rng(0).standard_normal((5, 2))

# random_fourier(3, 1.0, 0) of the tokens (0, 0) and (1, -2), once and for all.
PINNED = [
    [-0.48005415270249163, -0.37888435056288206, 0.7313443623898955],
    [0.7874353909619036, 0.3622615537437609, -0.6960905996804008],
]


# What they compute ----------------------------------------------------------------------------


@pytest.mark.parametrize("include_lower", [True, False])
@pytest.mark.parametrize(("degree", "n_dims"), [(1, 1), (1, 3), (2, 3), (3, 2), (5, 1), (4, 3)])
def test_monomials_in_their_order(degree, n_dims, include_lower):
    degrees = range(degree + 1) if include_lower else [degree]
    indices = [each for k in degrees for each in combinations_with_replacement(range(n_dims), k)]
    tokens = np.random.default_rng(1).standard_normal((4, n_dims))
    expected = [[prod(token[j] for j in each) for each in indices] for token in tokens]
    found = maps.polynomial(degree, include_lower)(tokens)
    np.testing.assert_allclose(found, expected, rtol=1e-15 * degree)


def test_no_partial_product_leaves_the_range():
    """x_0 x_0 is below all numbers of float64, and x_0 x_0 x_1 is not."""
    token = (-1e-200, 1e100, 3e-110)
    found = maps.polynomial(3, include_lower=False)(token)
    indices = combinations_with_replacement(range(3), 3)
    for product, each in zip(found.tolist(), indices, strict=True):
        exact = prod(Fraction(token[j]) for j in each)
        assert abs(Fraction(product) - exact) <= Fraction(1e-15) * abs(exact) + Fraction(5e-324)
    assert found[1] == pytest.approx(1e-300, rel=1e-14)
    with pytest.raises(OutOfRange, match=r"coordinates reach 1e\+200"):
        maps.polynomial(3)((1e200, 1.0))


def test_elu_plus_one():
    found = maps.elu1()([[-2.0, -1e-3, 0.0, 0.5]])
    np.testing.assert_allclose(found, [[exp(-2), exp(-1e-3), 1.0, 1.5]], rtol=1e-15)


def test_hedgehog_is_one_softmax_of_both_signs():
    for weights, logits in ((None, TOKENS), (WEIGHTS, TOKENS @ WEIGHTS)):
        found = maps.hedgehog(weights)(TOKENS)
        for row, z in zip(found, logits.tolist(), strict=True):
            exponentials = [exp(each) for each in z] + [exp(-each) for each in z]
            np.testing.assert_allclose(row, np.array(exponentials) / sum(exponentials), rtol=1e-14)


def test_normalised_tokens():
    found = maps.normalised()([[3.0, -4.0], [0.0, 0.0], [-0.0, 7.0]])
    np.testing.assert_array_equal(found, [[0.6, -0.8], [0.0, 0.0], [0.0, 1.0]])


def test_waves_from_the_bits_of_the_generator():
    """Frequencies by Box and Muller's formula: no distribution of numpy is in between."""
    n, d, scale, seed = 3, 2, 1.5, 11
    bits = np.random.PCG64(np.random.SeedSequence([seed, d]))
    uniform = [((bits.random_raw() >> 11) + 0.5) / 2**53 for _ in range((2 * d + 1) * n)]
    found = maps.random_fourier(n, scale, seed)(TOKENS)
    for token, row in zip(TOKENS, found, strict=True):
        for i in range(n):
            phase = 2 * pi * uniform[2 * d * n + i]
            for j in range(d):
                angle = 2 * pi * uniform[(d + j) * n + i]
                phase += token[j] * sqrt(-2 * log(uniform[j * n + i])) * cos(angle) / scale
            assert row[i] == pytest.approx(sqrt(2 / n) * cos(phase), abs=1e-14)


def test_waves_do_not_change_with_the_release():
    """These numbers are in files by their seed alone."""
    found = maps.random_fourier(3, 1.0, 0)([[0.0, 0.0], [1.0, -2.0]])
    np.testing.assert_allclose(found, PINNED, rtol=1e-13)


def test_waves_approximate_the_gaussian_kernel():
    tokens = np.random.default_rng(2).standard_normal((30, 4))
    seen = maps.random_fourier(4000, 1.7, 3)(tokens)
    distances = np.sum((tokens[:, None] - tokens) ** 2, axis=2)
    errors = seen @ seen.T - np.exp(-distances / (2 * 1.7**2))
    assert np.sqrt(np.mean(errors**2)) < 1.5 / sqrt(4000)
    # Another seed gives other waves; a generator gives a seed that is kept.
    assert np.max(np.abs(maps.random_fourier(4000, 1.7, 4)(tokens) - seen)) > 0.01
    drawn = maps.random_fourier(3, 1.0, np.random.default_rng(0))
    assert drawn == maps.random_fourier(3, 1.0, drawn.random_state)


# Every map ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAPS)
def test_shapes(name):
    apply = MAPS[name]()
    seen = apply(TOKENS)
    assert seen.dtype == np.float64
    assert seen.shape[0] == 5
    # One token, and more axes; the product with weights rounds differently for other shapes.
    np.testing.assert_allclose(apply(TOKENS[0]), seen[0], rtol=1e-14)
    more = apply(np.stack([TOKENS, TOKENS])[:, None])
    assert more.shape == (2, 1, *seen.shape)
    np.testing.assert_allclose(more[1, 0], seen, rtol=1e-14)
    np.testing.assert_allclose(apply(np.asfortranarray(TOKENS)), seen, rtol=1e-14)
    assert apply(TOKENS[:0]).shape == (0, seen.shape[1])
    exact = np.round(TOKENS * 8)
    np.testing.assert_array_equal(apply(exact.astype(np.float32)), apply(exact))
    np.testing.assert_array_equal(apply(exact.astype(np.int8)), apply(exact))


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("size", [0.0, 5e-324, 1e-310, 1e-150, 1e-100, 1e100, 1e150, 1e307])
def test_no_size_of_tokens_gives_nan(name, size):
    apply, tokens = MAPS[name](), TOKENS * size
    try:
        seen = apply(tokens)
    except OutOfRange:
        # Only products of coordinates can be too large; all other answers exist.
        assert (name in ("polynomial", "monomials") and size >= 1e150) or size == 1e307
        return
    assert np.all(np.isfinite(seen))
    if name == "normalised" and size >= 1e-150:
        np.testing.assert_allclose(np.linalg.norm(seen, axis=1), 1.0, rtol=1e-15)
    if name in ("hedgehog", "trained"):
        np.testing.assert_allclose(seen.sum(axis=1), 1.0, rtol=1e-15)


@pytest.mark.parametrize("name", MAPS)
def test_maps_are_compared_and_stored_by_content(name):
    one, other = MAPS[name](), MAPS[name]()
    assert one == other
    assert hash(one) == hash(other)
    assert [each for each in MAPS if MAPS[each]() == one] == [name]
    assert one != name
    again = maps.ready_map(json.loads(json.dumps(one.to_dict(), allow_nan=False)), "query")
    assert again == one
    np.testing.assert_array_equal(again(TOKENS), one(TOKENS))


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (maps.polynomial(2), "polynomial(degree=2, include_lower=True)"),
        (maps.elu1(), "elu1()"),
        (
            maps.random_fourier(8, 0.5),
            "random_fourier(n_features=8, scale=0.5, random_state=0)",
        ),
        (maps.hedgehog(), "hedgehog()"),
        (maps.hedgehog(WEIGHTS), "hedgehog(weights=2x3 matrix)"),
        (maps.normalised(), "normalised()"),
    ],
)
def test_a_map_is_shown_as_it_was_made(made, text):
    assert repr(made) == text


def test_maps_cannot_be_changed():
    weights = WEIGHTS.copy()
    made = maps.hedgehog(weights)
    weights[0, 0] = 9.0
    assert made == maps.hedgehog(WEIGHTS)
    with pytest.raises(ValueError, match="read-only"):
        made.weights[0, 0] = 9.0
    with pytest.raises(AttributeError):
        maps.polynomial(2).degree = 3
    assert maps.hedgehog(-np.zeros((1, 1))) == maps.hedgehog(np.zeros((1, 1)))
    assert maps.hedgehog(np.eye(2)) != maps.hedgehog()


# What is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: maps.polynomial(0), "degree must be an integer of at least 1; got 0"),
        (lambda: maps.polynomial(2.0), "degree must be an integer"),
        (lambda: maps.polynomial(101), "degree must be at most 100; got 101"),
        (lambda: maps.polynomial(2, include_lower=1), "include_lower must be True or False"),
        (lambda: maps.random_fourier(0, 1.0), "n_features must be an integer of at least 1"),
        (lambda: maps.random_fourier(10**7, 1.0), "n_features must be at most 1,000,000"),
        (lambda: maps.random_fourier(2, 0.0), "scale must be above 0"),
        (lambda: maps.random_fourier(2, -1.0), "scale must be a finite number >= 0"),
        (lambda: maps.random_fourier(2, np.nan), "scale must be a finite number"),
        (lambda: maps.random_fourier(2, "auto"), "scale must be a finite number"),
        (lambda: maps.random_fourier(2, 1.0, -1), "random_state must be an integer >= 0"),
        (lambda: maps.random_fourier(2, 1.0, "seed"), "random_state must be an integer >= 0"),
        (lambda: maps.hedgehog([1.0, 2.0]), "weights as a matrix must have shape (d, r)"),
        (lambda: maps.hedgehog(np.zeros((0, 2))), "weights as a matrix must have shape (d, r)"),
        (lambda: maps.hedgehog([[np.nan]]), "weights contains NaN or infinity"),
        (lambda: maps.hedgehog("identity"), "weights must hold real numbers; got text"),
        (lambda: maps.hedgehog(WEIGHTS)([[1.0]]), "have 2 rows, one for each coordinate"),
        (lambda: maps.polynomial(50)(np.ones((1, 50))), "choose a smaller degree"),
        (lambda: maps.elu1()(1.0), "tokens must have shape (..., d)"),
        (lambda: maps.elu1()(np.ones((3, 0))), "tokens must have shape (..., d)"),
        (lambda: maps.elu1()([["a"]]), "tokens must hold real numbers; got text"),
        (lambda: maps.elu1()([[np.nan]]), "tokens contains NaN or infinity"),
        (lambda: maps.normalised()([[np.inf, 1.0]]), "tokens contains NaN or infinity"),
        (lambda: maps.random_fourier(2, 1e-200)([[1e150]]), "that float64 cannot hold"),
    ],
    ids=range(24),
)
def test_nonsense_is_refused(make, words):
    with pytest.raises(PolyattnError) as refusal:
        make()
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "key must be an object"),
        ({}, "key.name must be one of polynomial, elu1"),
        ({"name": ["elu1"]}, "key.name must be one of"),
        ({"name": "__class__"}, "key.name must be one of"),
        ({"name": "elu1", "degree": 2}, "key holds an unknown field 'degree'"),
        ({"name": "polynomial", "degree": 2}, "key lacks the field 'include_lower'"),
        ({"name": "polynomial", "degree": 10**9, "include_lower": True}, "key.degree must be"),
        ({"name": "polynomial", "degree": True, "include_lower": True}, "key.degree must be"),
        ({"name": "polynomial", "degree": 2, "include_lower": 1}, "true or false"),
        (
            {"name": "random_fourier", "n_features": 10**12, "scale": 1.0, "random_state": 0},
            "key.n_features must be",
        ),
        (
            {"name": "random_fourier", "n_features": 2, "scale": 0, "random_state": 0},
            "key: scale must be above 0",
        ),
        (
            {"name": "random_fourier", "n_features": 2, "scale": 1.0, "random_state": -1},
            "key.random_state must be an integer >= 0",
        ),
        (
            {"name": "random_fourier", "n_features": 2, "scale": 1.0, "random_state": None},
            "key.random_state must be an integer",
        ),
        ({"name": "hedgehog", "weights": []}, "key.weights must be a list"),
        ({"name": "hedgehog", "weights": [[1], [1, 2]]}, "not a rectangular array"),
        ({"name": "hedgehog", "weights": [[float("inf")]]}, "a finite number"),
    ],
    ids=range(16),
)
def test_a_hostile_file_is_refused(content, words):
    with pytest.raises(FileFormatError) as refusal:
        maps.ready_map(content, "key")
    assert words in str(refusal.value)


def test_a_seed_of_any_size_is_kept():
    large = maps.random_fourier(2, 1.0, 2**100)
    assert maps.ready_map(large.to_dict(), "key") == large
    assert large.random_state == 2**100


def test_the_number_of_monomials_is_bounded_before_they_are_made():
    with pytest.raises(InvalidInput, match="100,891,344,545,564,193,334,812,497,256 numbers"):
        maps.polynomial(50)(np.ones((1, 50)))
