"""Linear algebra modulo a prime, and fractions that are read off residues."""

from fractions import Fraction
from math import gcd

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyattn.certify.exact.integers import lifted, reconstruct
from polyattn.certify.exact.modular import LARGEST, Echelon, centre, inverse, multiply, primes

PRIME = next(primes())


def test_primes():
    some = [prime for prime, _ in zip(primes(), range(50), strict=False)]
    assert some == sorted(set(some), reverse=True)
    assert all(all(prime % k for k in range(2, 2048)) for prime in some)
    assert some[0] < LARGEST


def test_centre_at_its_limits():
    limit = 2**53 - 2**22
    edges = [limit // PRIME * PRIME + k for k in (-1, 0, 1)]
    halves = [q * PRIME + PRIME // 2 + k for q in (0, 1, 2**30) for k in (-1, 0, 1, 2)]
    values = np.array([[s * v for v in (*edges, *halves, 0, limit) for s in (1, -1)]], dtype=float)
    centred = values.copy()
    centre(centred, PRIME)
    assert np.abs(centred).max() <= PRIME // 2 + 2
    for before, after in zip(values[0], centred[0], strict=True):
        assert (int(before) - int(after)) % PRIME == 0
        assert (after == 0) == (int(before) % PRIME == 0)


def test_rows_of_any_length_are_centred():
    values = np.arange(80_000.0).reshape(2, 40_000) * PRIME
    values += np.arange(2)[:, None]
    centre(values, PRIME)
    np.testing.assert_array_equal(values, np.broadcast_to([[0.0], [1.0]], values.shape))


def test_products_of_the_largest_residues_are_exact():
    rng = np.random.default_rng(9)
    left = rng.choice([-1.0, 1.0], (3, 5000)) * (PRIME // 2 + 2)
    right = np.abs(left).T
    expected = left.astype(object) @ right.astype(object) % PRIME
    np.testing.assert_array_equal(multiply(left, right, PRIME) % PRIME, expected.astype(float))


@pytest.mark.parametrize("shape", [(600, 150), (150, 400), (300, 300)])
@pytest.mark.parametrize("rank", [1, 40, 140])
@pytest.mark.parametrize("density", [0.02, 1.0])
def test_echelon(shape, rank, density):
    rng = np.random.default_rng(10)
    factors = [rng.integers(-99, 100, size) for size in ((shape[0], rank), (rank, shape[1]))]
    sparse = [factor * (rng.random(factor.shape) < density) for factor in factors]
    rows = (sparse[0] @ sparse[1]).astype(float)
    echelon = Echelon(shape[1], PRIME)
    found = np.concatenate([echelon.absorb(rows[:90]), 90 + echelon.absorb(rows[90:])])
    assert len(found) == echelon.rank == np.linalg.matrix_rank(rows)
    assert np.linalg.matrix_rank(rows[found]) == echelon.rank
    assert sorted([*echelon.pivots, *echelon.free]) == list(range(shape[1]))
    assert not echelon.reduce(rows).any()
    stranger = rng.integers(-9, 10, (1, shape[1])).astype(float)
    assert echelon.reduce(stranger).any() == (echelon.rank < shape[1])
    vectors = echelon.null_vectors(np.eye(len(echelon.free)))
    np.testing.assert_array_equal(vectors[echelon.free], np.eye(len(echelon.free)))
    assert not multiply(rows, vectors, PRIME).any()
    assert len(echelon.absorb(rows)) == 0


def test_echelon_against_flint():
    flint = pytest.importorskip("flint")
    rng = np.random.default_rng(11)
    rows = rng.integers(0, PRIME, (120, 5)) @ rng.integers(0, PRIME, (5, 90)) % PRIME
    oracle = flint.nmod_mat(120, 90, [int(v) for v in rows.ravel()], PRIME)
    centred = rows.astype(float)
    centre(centred, PRIME)
    echelon = Echelon(90, PRIME)
    echelon.absorb(centred)
    assert echelon.rank == oracle.rank() == 5


def test_inverse():
    rng = np.random.default_rng(12)
    matrix = rng.integers(-9, 10, (70, 70)).astype(float)
    matrix[:, 0] = 0
    assert inverse(matrix, PRIME) is None
    matrix[:, 0] = np.arange(70)
    np.testing.assert_array_equal(multiply(inverse(matrix, PRIME), matrix, PRIME), np.eye(70))


# Fractions ------------------------------------------------------------------------------------


@given(st.lists(st.fractions(min_value=-99, max_value=99, max_denominator=12), min_size=1))
def test_fractions_come_back(fractions):
    modulus = PRIME**9
    residues = [f.numerator * pow(f.denominator, -1, modulus) for f in fractions]
    found = reconstruct(residues, modulus)
    scale = next((Fraction(i) / f for i, f in zip(found, fractions, strict=True) if f), 1)
    assert found == [scale * f for f in fractions]
    assert gcd(*found) in (0, 1)


def test_long_fractions_are_not_guessed():
    rng = np.random.default_rng(13)
    assert reconstruct([1, *rng.integers(0, PRIME, 9).tolist()], PRIME) is None


@pytest.mark.parametrize("bits", [3, 40, 200])
def test_lifting(bits):
    rng = np.random.default_rng(14)
    matrix = rng.integers(-7, 8, (12, 12)).astype(object) * 2**bits + rng.integers(-7, 8, (12, 12))
    truth = rng.integers(-99, 100, (12, 2)).astype(object) * 10**30
    for solution, modulus in lifted(matrix, matrix @ truth, PRIME, 40):
        assert not np.any((solution - truth) % modulus)
    assert modulus == PRIME**40
    for column, expected in zip(solution.T.tolist(), truth.T.tolist(), strict=True):
        assert reconstruct([1, *column], modulus) == [1, *expected]
    singular = np.ones((2, 2), dtype=np.int64)
    assert list(lifted(singular, singular, PRIME, 3)) == []
