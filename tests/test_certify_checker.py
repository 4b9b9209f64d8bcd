"""The checker's own tools: ranks, primes, residues, features and domains, written a second time."""

from fractions import Fraction

import numpy as np
import pytest

import polyattn as pa
from domain_cases import DOMAIN_CASES
from polyattn import domains
from polyattn.certify.check.domains import CHECKED
from polyattn.certify.check.features import (
    LARGEST_PRIME,
    Table,
    is_prime,
    random_prime,
    rank_and_span,
    rank_modulo,
    rank_of,
    reduce,
    residues,
)
from polyattn.certify.check.form_table import FormTable
from polyattn.certify.check.forms import FormFeatures
from polyattn.errors import InvalidInput
from polyattn.form import Form
from polyattn.reference import erm
from polyattn.sequences import MODES, SequenceBatch, as_batch


@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (5, 7), (90, 70), (70, 150), (200, 130)])
def test_rank_modulo_a_prime(shape):
    rng = np.random.default_rng(1)
    prime = random_prime(rng)
    for rank in {1, min(shape) // 2 or 1, min(shape)}:
        left, right = rng.integers(-3, 4, (shape[0], rank)), rng.integers(-3, 4, (rank, shape[1]))
        matrix = (left @ right).astype(float)
        assert rank_of(reduce(matrix.copy(), prime), prime) == np.linalg.matrix_rank(matrix)
        sparse = matrix * (np.arange(shape[1]) % 3 == 0)
        assert rank_of(reduce(sparse.copy(), prime), prime) == np.linalg.matrix_rank(sparse)


@pytest.mark.parametrize("shape", [(3, 7), (70, 66), (130, 90), (20, 200)])
def test_rows_in_the_span_of_others_are_recognised(shape):
    rng = np.random.default_rng(4)
    prime = random_prime(rng)
    for rank in {1, min(shape) // 2 or 1, min(shape)}:
        left, right = rng.integers(-3, 4, (shape[0], rank)), rng.integers(-3, 4, (rank, shape[1]))
        matrix = (left @ right).astype(float)
        true = np.linalg.matrix_rank(matrix)
        inside = reduce(rng.integers(-3, 4, (2, shape[0])) @ matrix, prime)
        assert rank_and_span(np.concatenate([matrix, inside]), 2, prime) == (true, True)
        for column in (0, shape[1] - 1):
            other = inside + (np.arange(shape[1]) == column)
            both = np.concatenate([matrix, other])
            expected = np.linalg.matrix_rank(both) == true
            assert rank_and_span(both, 2, prime) == (true, expected)


def test_rows_that_a_share_of_the_data_misses_count():
    """One sequence of thousands has the last feature."""
    rng = np.random.default_rng(5)
    X = rng.integers(-3, 4, (3000, 2, 2))
    X[:, :, 1] = 0
    X[1777, :, 1] = 1
    table = Table(as_batch(X), "last", bias=False)
    assert rank_modulo([table], random_prime(rng), 6, rng) == 2
    together = [table, Table(as_batch(rng.integers(-3, 4, (40, 2, 2))), "last", bias=False)]
    assert rank_modulo(together, random_prime(rng), 6, rng) == 6


def test_primes():
    small = [n for n in range(200) if is_prime(n)]
    assert small == [n for n in range(3, 200) if all(n % k for k in range(2, n))]
    assert is_prime(LARGEST_PRIME)
    assert not is_prime(2**31 - 1)
    rng = np.random.default_rng(0)
    primes = {random_prime(rng, 4194319) for _ in range(20)}
    assert len(primes) == 20
    assert min(primes) > 1 << 22


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.uint64, np.float32, float])
def test_residues_are_those_of_the_exact_numbers(dtype):
    rng = np.random.default_rng(2)
    if np.dtype(dtype).kind == "f":
        tokens = (rng.standard_normal((40, 3)) * 10.0 ** rng.integers(-30, 30, (40, 3))).astype(
            dtype
        )
    elif dtype is bool:
        tokens = rng.integers(2, size=(40, 3)).astype(bool)
    else:
        bounds = np.iinfo(dtype)
        tokens = rng.integers(bounds.min, bounds.max, (40, 3), dtype=dtype, endpoint=True)
    prime = random_prime(rng)
    for number, residue in zip(tokens.ravel(), residues(tokens, prime).ravel(), strict=True):
        exact = Fraction(float(number)) if tokens.dtype.kind == "f" else Fraction(int(number))
        expected = exact.numerator * pow(exact.denominator, -1, prime)
        assert (expected - int(residue)) % prime == 0
        assert abs(residue) <= prime / 2 + 1


@pytest.mark.parametrize("mode", MODES)
def test_features_are_those_of_the_reference(mode):
    rng = np.random.default_rng(0)
    X = [rng.integers(-9, 10, (n, 3)) for n in (1, 4, 2, 7)]
    table = Table(as_batch(X), mode, bias=False)
    expected = erm.design([x.astype(float) for x in X], mode)
    found = np.concatenate(list(table.features(LARGEST_PRIME)))
    np.testing.assert_array_equal(found, expected)
    vector = rng.integers(-9, 10, 18).astype(float)
    products = np.concatenate(list(table.products(vector, LARGEST_PRIME)))
    np.testing.assert_array_equal(products, expected @ vector)


@pytest.mark.parametrize("most", [None, 1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", tuple(CHECKED))
def test_dimensions_are_ranks_of_many_samples(name, bias, most):
    rng = np.random.default_rng(3)
    for d in (1, 2, 3, 4):
        checked = CHECKED[name](1, most)
        many = [checked.some_sequences(d, rng) for _ in range(3)]
        batch = SequenceBatch.from_sequences([x for each in many for x in each])
        assert checked.holds(batch)
        table = Table(batch, "last", bias, checked.is_one_hot)
        size = checked.dimension(d, bias)
        assert rank_modulo([table], random_prime(rng), len(table.columns), rng) == size
        assert size == DOMAIN_CASES[name].dimension(d, bias, most == 1)
        assert size == pa.certify(batch, "last", domains.BUILT_IN[name](most), bias=bias).dimension


@pytest.mark.parametrize("name", tuple(CHECKED))
def test_both_codes_know_the_tokens_of_a_domain(name):
    """What one of them takes the other takes; and tokens from elsewhere are refused by both."""
    domain, checked = domains.BUILT_IN[name](), CHECKED[name]()
    inside = SequenceBatch.from_array(checked.sequences_of_length(3, 2, np.random.default_rng(0)))
    assert checked.holds(inside)
    domain.require_inside(inside)
    assert name == "real" or DOMAIN_CASES[name].foreign
    for token in DOMAIN_CASES[name].foreign:
        outside = SequenceBatch.from_array(np.array([[token]]))
        assert not checked.holds(outside)
        with pytest.raises(InvalidInput, match="does not belong"):
            domain.require_inside(outside)


def test_every_feature_of_a_form_shows_on_the_sequences_that_are_tried():
    """Two given symbols of sixteen are seldom together; no direction must be missed."""
    rng, seen = np.random.default_rng(6), FormFeatures(Form(include_query=False), 16, None)
    batch, _ = CHECKED["one_hot"]().sequences_for(seen, rng)
    table = FormTable(batch, "last", bias=False, seen=seen)
    assert np.count_nonzero(table.occurring(LARGEST_PRIME)[0]) == 16**2
