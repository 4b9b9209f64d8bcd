"""Exact rank and null vectors against elimination with fractions, on data of every kind."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import gcd

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyattn import domains
from polyattn.certify.exact import integers
from polyattn.certify.exact import rank as exact
from polyattn.certify.exact.feature_rows import FeatureRows
from polyattn.certify.exact.integers import reconstruct
from polyattn.certify.exact.modular import primes
from polyattn.certify.exact.numbers import Extents, is_integer_data, number_residues
from polyattn.certify.exact.rank import ExactRank, exact_rank, null_space, null_vector
from polyattn.errors import InvalidInput
from polyattn.form.layout import Layout
from polyattn.progress import listening
from polyattn.sequences import MODES, SequenceBatch, as_batch
from rational_arithmetic import rational_features, rational_rank

PRIME = next(primes())


def annihilates(rows, vector):
    """Whether psi . v = 0 for every row, exactly."""
    return bool(integers.annihilated(rows, [vector])[0])


def exact_batch(X) -> SequenceBatch:
    return as_batch(X, keep_integers=True)


# The oracle -------------------------------------------------------------------------------------


def feature_rows(batch, mode="last", bias=False, columns=None) -> FeatureRows:
    """Of all features, unless some columns are chosen."""
    every = np.arange((batch.n_dims + bias) ** 2 * (batch.n_dims + bias + 1) // 2)
    layout = Layout.plain(batch.n_dims, mode, bias)
    return FeatureRows(batch, every if columns is None else columns, layout)


def fraction_rows(rows: FeatureRows) -> list[list[Fraction]]:
    """Every row of psi, in fractions."""
    every = [
        row for x in rows.batch for row in rational_features(x, rows.mode, rows.layout.form.bias)
    ]
    return [[row[c] for c in rows.columns] for row in every]


def fraction_products(rows: FeatureRows, vector) -> list[Fraction]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in fraction_rows(rows)]


def judge(rows: FeatureRows, space: bool = True) -> int:
    """Rank, independent rows, null vector and null space all agree with the oracle."""
    matrix = fraction_rows(rows)
    rank = rational_rank(matrix)
    found = exact_rank(rows)
    assert (found.rank, found.n_columns, len(found.free)) == (
        rank,
        rows.n_columns,
        len(matrix[0]) - rank,
    )
    assert len(found.independent) == rank
    if rank:
        assert rational_rank([matrix[i] for i in found.independent]) == rank
    vector = null_vector(rows, found)
    if rank == rows.n_columns:
        assert vector is None
        assert null_space(rows, found) == []
        return rank
    assert any(vector)
    assert gcd(*vector) == 1
    assert not any(fraction_products(rows, vector))
    if space:
        vectors = null_space(rows, found)
        assert rational_rank([[Fraction(v) for v in row] for row in vectors]) == len(found.free)
        assert not any(any(fraction_products(rows, vector)) for vector in vectors)
    return rank


# Data of every kind ---------------------------------------------------------------------------


def tokens_of(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    dyadic = rng.integers(-8, 9, shape) / 4.0
    return {
        "integer": lambda: rng.integers(-3, 4, shape),
        "dyadic": lambda: dyadic,
        "units": lambda: dyadic * 2.0 ** np.arange(shape[-1]) ** 5,
        "float": lambda: rng.standard_normal(shape),
        "float32": lambda: rng.standard_normal(shape).astype(np.float32),
        "float16": lambda: rng.standard_normal(shape).astype(np.float16),
        "Boolean": lambda: rng.choice([-1.0, 1.0], shape),
        "bool": lambda: rng.random(shape) < 0.5,
        "one-hot": lambda: np.eye(shape[-1])[rng.integers(0, shape[-1], shape[:-1])],
        "counts": lambda: rng.poisson(1.0, shape).astype(np.int8),
        "uint64": lambda: rng.integers(0, 2**64, shape, dtype=np.uint64) | np.uint64(1),
        "int64": lambda: rng.integers(-(2**63), 2**63, shape, dtype=np.int64),
        "large": lambda: 1e150 * rng.integers(-3, 4, shape),
        "small": lambda: 1e-150 * rng.integers(-3, 4, shape),
        "both": lambda: 10.0 ** np.array([150, -150, 0])[: shape[-1]] * rng.integers(1, 4, shape),
        "subnormal": lambda: 5e-324 * rng.integers(-3, 4, shape),
        "zero": lambda: np.zeros(shape),
    }[kind]()


KINDS = (
    "integer", "dyadic", "units", "float", "float32", "float16", "Boolean", "bool", "one-hot",
    "counts", "uint64", "int64", "large", "small", "both", "subnormal", "zero",
)  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_in_every_mode(kind, mode):
    rng = np.random.default_rng(1)
    n_sequences = 25 if mode == "last" else 9
    judge(feature_rows(exact_batch(tokens_of(kind, (n_sequences, 3, 2), rng)), mode))
    few = exact_batch(tokens_of(kind, (2, 2, 3), rng))
    judge(feature_rows(few, mode), space=False)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["integer", "dyadic", "Boolean", "one-hot", "uint64", "both"])
def test_ragged_with_bias(kind, mode):
    rng = np.random.default_rng(2)
    ragged = [tokens_of(kind, (length, 2), rng) for length in (1, 4, 2, 3, 1, 2, 5)]
    judge(feature_rows(exact_batch(ragged), mode, bias=True), space=kind != "uint64")


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["integer", "dyadic", "Boolean", "counts", "float16"]),
    st.sampled_from(MODES),
    st.booleans(),
    st.integers(1, 12),
)
def test_random_data_are_judged_right(seed, kind, mode, bias, n_sequences):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, n_sequences)
    batch = exact_batch([tokens_of(kind, (int(length), 2), rng) for length in lengths])
    p = 18 if bias else 6
    columns = rng.choice(p, rng.integers(1, p + 1), replace=False) if seed % 2 else None
    judge(feature_rows(batch, mode, bias, columns))


def every_sequence(alphabet: np.ndarray, n_tokens: int) -> np.ndarray:
    return np.array([np.stack(tokens) for tokens in product(alphabet, repeat=n_tokens)])


SIGNS = np.array(list(product([-1, 1], repeat=3)))


@pytest.mark.parametrize(
    ("tokens", "rank"),
    [
        (every_sequence(SIGNS, 3), 12),
        (every_sequence(np.eye(3), 3), 9),
        (np.random.default_rng(0).integers(-9, 10, (60, 1, 3)), 10),
        (np.random.default_rng(0).integers(-9, 10, (60, 4, 3)), 18),
    ],
    ids=["Boolean", "one-hot", "length one", "integers"],
)
def test_known_ranks(tokens, rank):
    rows = feature_rows(exact_batch(tokens))
    found = exact_rank(rows)
    assert found.rank == rank
    assert len(null_space(rows, found)) == 18 - rank


def test_null_vector_is_simple():
    # G_11 = G_22 for Boolean tokens: one difference of two features.
    rows = feature_rows(exact_batch(every_sequence(SIGNS, 2)))
    vector = null_vector(rows, exact_rank(rows))
    assert sorted(map(abs, vector))[-3:] == [0, 1, 1]


def test_memory_map_and_duplicates(tmp_path):
    tokens = np.random.default_rng(3).integers(-2, 3, (20, 3, 2)).astype(np.int16)
    np.save(tmp_path / "tokens.npy", np.concatenate([tokens, tokens]))
    stored = np.load(tmp_path / "tokens.npy", mmap_mode="r")
    assert judge(feature_rows(exact_batch(stored))) == 6
    assert judge(feature_rows(exact_batch(np.repeat(tokens[:1], 7, axis=0)))) == 1


def test_one_row():
    assert judge(feature_rows(exact_batch([[[1.0, 2.0]]]))) == 1
    assert judge(feature_rows(exact_batch([[[0.0]]]))) == 0


def test_units_do_not_make_vectors_long():
    tokens = np.random.default_rng(4).choice([-1.0, 1.0], (40, 3, 3))
    rows = feature_rows(exact_batch(tokens * 2.0 ** np.array([300, -300, 0])))
    vectors = null_space(rows, exact_rank(rows))
    # Two entries each, powers of two of at most 900 binary digits apart from small integers.
    assert len(vectors) == 6
    assert all(abs(v).bit_count() <= 2 for vector in vectors for v in vector)


# Columns, blocks, long sequences --------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_residues_are_those_of_the_features(mode):
    rng = np.random.default_rng(5)
    batch = exact_batch([rng.standard_normal((length, 3)) for length in (3, 1, 40, 2, 5)])
    columns = np.array([17, 3, 4, 3, 11])
    for rows in (feature_rows(batch, mode), feature_rows(batch, mode, True, columns)):
        expected = [[residue(value) for value in row] for row in fraction_rows(rows)]
        for block_rows in (1, 4, 1000):
            blocks = [
                (block.first, block.features()) for block in rows.summaries(PRIME, block_rows)
            ]
            assert [first for first, _ in blocks] == sorted(first for first, _ in blocks)
            got = np.concatenate([block for _, block in blocks])
            np.testing.assert_array_equal(got % PRIME, expected)
        numbers, every = rng.permutation(rows.n_rows)[:4], fraction_rows(rows)
        units = [Fraction(2) ** e for e in rows.lowest.tolist()]
        found = integers.integer_rows(rows, numbers, np.arange(rows.n_columns)).tolist()
        scaled = [[z * unit for z, unit in zip(row, units, strict=True)] for row in found]
        assert scaled == [every[number] for number in numbers]


def residue(value: Fraction) -> int:
    return value.numerator * pow(value.denominator, -1, PRIME) % PRIME


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lengths", [(5000, 3), (1, 2046, 2047, 4093), (700,) * 9])
def test_long_sequences(mode, lengths):
    rng = np.random.default_rng(6)
    # Residues of full size: their sums would overflow float64 if they were not cut.
    tokens = rng.integers(PRIME // 2 - 9, PRIME // 2, (sum(lengths), 2))
    batch = SequenceBatch(tokens, np.concatenate([[0], np.cumsum(lengths)]))
    blocks = [each.features() for each in feature_rows(batch, mode).summaries(PRIME, 3000)]
    expected = []
    for x in batch:
        pairs = np.stack([x[:, 0] ** 2, x[:, 0] * x[:, 1], x[:, 1] ** 2]) % PRIME
        sums = np.cumsum(pairs, axis=1) % PRIME
        sums = sums if mode == "causal" else np.repeat(sums[:, -1:], len(x), axis=1)
        psi = (sums[:, None] * x.T[None]).reshape(6, -1).T % PRIME
        expected.append(psi[-1:] if mode == "last" else psi)
    np.testing.assert_array_equal(np.concatenate(blocks) % PRIME, np.concatenate(expected))


def test_wide_tokens_with_few_columns():
    # p = 505,000, of which the 10,000 that one-hot tokens can see: here the 400 of 20 symbols.
    symbols = np.random.default_rng(7).integers(0, 20, (3000, 4))
    starts = np.cumsum([0, *range(100, 0, -1)])[:20]
    columns = (starts[:, None] * 100 + np.arange(20)).ravel()
    rows = feature_rows(exact_batch(np.eye(100, dtype=np.int8)[symbols]), columns=columns)
    found = exact_rank(rows)
    assert (found.rank, found.n_columns) == (400, 400)


def test_reading_stops_at_the_known_dimension():
    heard = []
    rows = feature_rows(
        exact_batch(np.random.default_rng(8).choice([-1, 1], (60000, 3, 3))), "causal"
    )
    known = replace(rows, columns=domains.Boolean().space(Layout.plain(3)).columns)
    with listening(lambda done, total: heard.append((done, total))):
        assert exact_rank(known).rank == 12
    assert heard[-1][0] < heard[-1][1] == 180000
    heard.clear()
    with listening(lambda done, total: heard.append((done, total))):
        assert exact_rank(rows).rank == 12
    assert heard[-1][0] == 180000


@pytest.mark.parametrize("columns", [[], [18], [-1], [0.5], [[1]]])
def test_impossible_columns(columns):
    with pytest.raises(InvalidInput, match="columns must be"):
        feature_rows(exact_batch(np.ones((1, 1, 3))), columns=np.array(columns))


# Sizes ----------------------------------------------------------------------------------------


def integer_bits(batch, bias=False):
    """The least K >= 0 and B such that all x 2^K are integers of size below 2^B."""
    extents = Extents.of(batch, bias)
    exponent = max(0, -int(extents.lowest.min()))
    bits = extents.highest[extents.largest > 0].max(initial=-exponent) + exponent
    return exponent, int(bits)


@pytest.mark.parametrize(
    ("values", "bias", "expected"),
    [
        ([1, -3], False, (0, 2)),
        ([0.0, 0.0], False, (0, 0)),
        ([0.0, 0.0], True, (0, 1)),
        ([0.75, 3.0], False, (2, 4)),
        ([0.75, 3.0], True, (2, 4)),
        ([2.0**-10, 0.0], True, (10, 11)),
        ([2.0**100, 2.0**99], False, (0, 101)),
        ([5e-324, 1.0], False, (1074, 1075)),
        (np.array([2**64 - 1, 1], dtype=np.uint64), False, (0, 65)),
        (np.array([-(2**63), 4]), False, (0, 64)),
        ([True, False], False, (0, 1)),
    ],
)
def test_integer_bits(values, bias, expected):
    bits = integer_bits(exact_batch(np.reshape(values, (1, 2, 1))), bias)
    exponent, size = bits
    assert exponent == expected[0]
    # One bit more than needed may come from numbers that float64 rounds up.
    assert size == expected[1]
    assert all(abs(Fraction(np.asarray(v).item())) * 2**exponent < 2**size for v in values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[1, 2], [-3, 4]], True),
        ([[0.5, 1024.0], [1.5, 0.0]], True),
        ([[32768, 1], [1, 1]], True),
        ([[32769, 1], [1, 1]], False),
        ([[2.0**300, 2.0**-300], [3 * 2.0**300, 0.0]], True),
        ([[0.1, 1.0], [0.2, 1.0]], False),
        ([[0.0, 0.0], [0.0, 0.0]], True),
        (np.array([[2**63, 2**63 + 2**62]], dtype=np.uint64), True),
    ],
)
def test_integer_data_are_recognised(values, expected):
    assert is_integer_data(exact_batch([np.array(values)])) is expected


def test_a_coordinate_of_zeros_has_no_bits():
    assert integer_bits(exact_batch(np.array([[[0.0, 0.25], [0.0, 0.125]]]))) == (3, 2)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_residues_of_floats(values):
    got = number_residues(np.array([values]), PRIME)[0] % PRIME
    assert got.tolist() == [residue(Fraction(value)) for value in values]


# Proofs that must fail ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Boolean", "units", "uint64", "float", "large"])
def test_a_vector_off_by_one_is_refused(kind):
    rng = np.random.default_rng(15)
    rows = feature_rows(exact_batch(tokens_of(kind, (4, 3, 2), rng)))
    vector = null_vector(rows, exact_rank(rows))
    assert annihilates(rows, vector)
    for place in range(6):
        wrong = list(vector)
        wrong[place] += 1
        assert any(fraction_products(rows, wrong))
        assert not annihilates(rows, wrong)


@pytest.mark.parametrize("mode", MODES)
def test_one_row_in_a_million_is_seen(mode):
    tokens = np.ones((200_000, 2, 2), dtype=np.int8)
    tokens[123_456] = [[1, 0], [2, 1]]
    rows = feature_rows(exact_batch(tokens), mode)
    assert not annihilates(rows, [0, 1, -1, 0, 0, 0])
    assert exact_rank(rows).rank > exact_rank(feature_rows(exact_batch(tokens[:9]), mode)).rank


@pytest.mark.parametrize("check", ["_by_limbs", "_by_primes"])
def test_both_checks_agree(check):
    rng = np.random.default_rng(16)
    rows = feature_rows(exact_batch(rng.integers(-5, 6, (4, 3, 2))), bias=True)
    vectors = null_space(rows, exact_rank(rows))
    long = [[7**200 * v for v in vector] for vector in vectors]
    wrong = [[v + (i == 2) for i, v in enumerate(vector)] for vector in long]
    verdicts = getattr(integers, check)(rows, [*vectors, *long, *wrong])
    expected = [not any(fraction_products(rows, v)) for v in [*vectors, *long, *wrong]]
    assert verdicts.tolist() == expected
    assert not verdicts[-len(wrong) :].any()


@pytest.mark.parametrize("numbers", [1, 100, 1 << 23])
def test_vectors_are_checked_in_portions_of_any_size(numbers, monkeypatch):
    monkeypatch.setattr(integers, "VECTOR_NUMBERS", numbers)
    rows = feature_rows(as_batch(np.random.default_rng(18).integers(-5, 6, (4, 3, 2))), bias=True)
    vectors = null_space(rows, exact_rank(rows))
    wrong = [[v + (i == 2) for i, v in enumerate(vector)] for vector in vectors]
    assert integers.annihilated(rows, [*vectors, *wrong]).tolist() == (
        [True] * len(vectors) + [not any(fraction_products(rows, vector)) for vector in wrong]
    )


@pytest.mark.parametrize("bits", range(2, 18))
def test_limbs_are_used_while_their_sums_are_exact(bits, monkeypatch):
    """Products of features, limbs of 8 bits and all columns have to stay below 2^53."""
    used = []
    for name in ("_by_limbs", "_by_primes"):
        true = getattr(integers, name)
        spy = lambda *given, name=name, true=true: used.append(name) or true(*given)  # noqa: E731
        monkeypatch.setattr(integers, name, spy)
    tokens = np.random.default_rng(bits).integers(-(2**bits) + 1, 2**bits, (9, 2, 3))
    tokens[0, 0] = [2**bits - 1, 1, 3]
    rows = feature_rows(as_batch(tokens))
    annihilates(rows, [1] * 18)
    largest = max(abs(entry) for row in fraction_rows(rows) for entry in row)
    exact = largest * 255 * 18 < 2**53
    # The bound is a few bits above the largest product: what it lets pass is exact.
    assert exact or used == ["_by_primes"]
    assert used == ["_by_limbs"] or largest * 255 * 18 * 2**8 > 2**53


@pytest.mark.parametrize("power", [7, 8, 15, 16, 31, 63, 64])
def test_a_power_of_two_is_not_zero(power):
    # psi = 2: the product has no digit but one beyond the limbs of the vector.
    rows = feature_rows(exact_batch(np.ones((1, 2, 1))))
    assert not annihilates(rows, [2**power])
    assert not annihilates(rows, [-(2**power)])


def test_a_multiple_of_the_first_prime_is_no_null_vector():
    rows = feature_rows(exact_batch(np.random.default_rng(17).integers(1, 4, (9, 2, 2))))
    huge = [v * PRIME for v in (1, 0, 0, 0, 0, 0)]
    assert not annihilates(rows, huge)
    assert not integers._by_primes(rows, [huge])[0]


def test_a_wrong_reconstruction_is_refused(monkeypatch):
    rows = feature_rows(exact_batch(np.random.default_rng(18).choice([-1, 1], (50, 3, 2))))
    found = exact_rank(rows)
    assert null_vector(rows, found) is not None

    def wrong(residues, modulus):
        right = reconstruct(residues, modulus)
        return right and [right[0] + 1, *right[1:]]

    monkeypatch.setattr(integers, "reconstruct", wrong)
    monkeypatch.setattr(exact, "EFFORT", 1e4)
    assert null_vector(rows, found) is None
    assert null_space(rows, found) is None


def test_a_prime_that_divides_the_data():
    tokens = np.random.default_rng(19).integers(-9, 10, (40, 3, 2))
    rows = feature_rows(exact_batch(tokens * PRIME))
    unlucky = exact_rank(rows, prime=PRIME)
    assert unlucky.rank == 0
    assert null_vector(rows, unlucky) is None
    assert null_space(rows, unlucky) is None
    assert exact_rank(rows).rank == 6
    one_coordinate = feature_rows(exact_batch(tokens * [1, PRIME]))
    assert exact_rank(one_coordinate, prime=PRIME).rank < 6
    assert null_vector(one_coordinate, exact_rank(one_coordinate, prime=PRIME)) is None
    assert exact_rank(one_coordinate).rank == 6


def test_an_unlucky_prime_ends_in_none():
    # Rank 6 that looks like 5 to the prime: what is lifted solves five rows, and not the others.
    tokens = np.random.default_rng(21).integers(-9, 10, (40, 3, 2))
    rows = feature_rows(exact_batch(tokens))
    five = ExactRank(6, PRIME)
    five.independent = exact_rank(rows).independent[:5]
    features = np.concatenate([block.features() for block in rows.summaries(PRIME)])
    five.absorb(features[five.independent])
    assert five.rank == 5
    assert null_vector(rows, five) is None
    assert null_space(rows, five) is None


@pytest.mark.parametrize("n_zeros", [1, 7])
def test_an_entry_that_vanishes_modulo_the_prime(n_zeros):
    rows = feature_rows(exact_batch(np.random.default_rng(22).integers(-9, 10, (10, 3, 3))))
    found = exact_rank(rows)
    found.coefficients[:n_zeros, 0] = 0.0
    vector = null_vector(rows, found)
    assert vector is not None
    assert not any(fraction_products(rows, vector))


def test_effort_is_limited(monkeypatch):
    rows = feature_rows(exact_batch(np.random.default_rng(20).standard_normal((10, 3, 3))))
    found = exact_rank(rows)
    assert null_vector(rows, found) is not None
    monkeypatch.setattr(exact, "MOST_VECTORS", 8)
    assert len(null_space(rows, found)) == 8
    monkeypatch.setattr(exact, "MOST_VECTORS", 7)
    assert null_space(rows, found) is None
    monkeypatch.setattr(exact, "EFFORT", 100)
    assert null_vector(rows, found) is None
