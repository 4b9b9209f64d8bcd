"""Independent entries: the second moment of the population [yau2024: Lemma A.5], as corrected.

The oracle enumerates all sequences of entries that take few values, in fractions, with features
made from tokens; it shares no formula with the library.
"""

from fractions import Fraction
from itertools import product
from math import comb, prod

import numpy as np
import pytest
from scipy.linalg import eigh

import polyattn as pa
from polyattn.certify import IndependentEntries, independent_entries
from polyattn.certify.independent_entries import blocks
from polyattn.certify.independent_entries.expectations import (
    ProductExpectations,
    features_of,
    ways_to_choose_others,
)
from polyattn.certify.independent_entries.leverage import leverage_moment
from polyattn.certify.independent_entries.permutations import matrix_of_sums
from polyattn.errors import InvalidInput, InvalidType, OutOfRange
from rational_arithmetic import rational_rank

MODES = ("last", "causal", "full")
HALF = Fraction(1, 2)
# Values of an entry with their probabilities; the first three have no odd moments.
THREE = {-1: Fraction(1, 4), 0: HALF, 1: Fraction(1, 4)}
FOUR = {-2: Fraction(1, 8), -1: Fraction(3, 8), 1: Fraction(3, 8), 2: Fraction(1, 8)}
SIGNS = {-1: HALF, 1: HALF}
ZERO_OR_ONE = {0: Fraction(2, 5), 1: Fraction(3, 5)}
LOPSIDED = {-1: Fraction(1, 5), HALF: HALF, 2: Fraction(3, 10)}
BIASED_SIGNS = {-1: Fraction(1, 3), 1: Fraction(2, 3)}


def moment(entry, k):
    return sum(chance * Fraction(value) ** k for value, chance in entry.items())


def found_for(entry, d, n, mode="last", most=6):
    even = [moment(entry, k) for k in range(2, most + 1, 2)]
    odd = [moment(entry, k) for k in (1, 3, 5)]
    return independent_entries(d, n, even, odd, mode)


def positions(X, mode):
    """(tokens attended to, query) of every predicted position."""
    ends = {"last": [len(X)], "causal": range(1, len(X) + 1), "full": range(1, len(X) + 1)}[mode]
    return [(X[:end] if mode == "causal" else X, X[end - 1]) for end in ends]


def enumerated(entry, d, n, mode="last"):
    """Chances (s,) and features (s, positions, p) of all sequences, as fractions."""
    chances, rows = [], []
    for chosen in product(entry.items(), repeat=n * d):
        values = [Fraction(value) for value, _ in chosen]
        chances.append(prod(chance for _, chance in chosen))
        X = [values[t * d : (t + 1) * d] for t in range(n)]
        rows.append([
            [sum(t[j] * t[k] for t in seen) * each for j in range(d) for k in range(j, d)
             for each in x]
            for seen, x in positions(X, mode)
        ])  # fmt: skip
    return chances, rows


def population(entry, d, n, mode="last"):
    """Lambda by enumeration, as a float matrix, and its exact rank."""
    chances, rows = enumerated(entry, d, n, mode)
    psi = np.array(rows, dtype=float)
    weights = np.array(chances, dtype=float) / psi.shape[1]
    matrix = np.einsum("s,sti,stj->ij", weights, psi, psi)
    distinct = {tuple(each) for row in rows for each in row}
    return matrix, rational_rank([list(each) for each in distinct])


SMALL = [(1, 1), (1, 3), (2, 1), (2, 2), (3, 1)]


@pytest.mark.parametrize(
    "entry", [THREE, FOUR, SIGNS, ZERO_OR_ONE, LOPSIDED, BIASED_SIGNS],
    ids=["three", "four", "signs", "zero or one", "lopsided", "biased signs"],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["last", "causal"])
def test_the_second_moment_of_an_enumerated_population(entry, mode):
    """Smallest and largest eigenvalue, rank, and whether the layer is determined."""
    for d, n in SMALL:
        matrix, rank = population(entry, d, n, mode)
        expected = np.linalg.eigvalsh(matrix)
        found = found_for(entry, d, n, mode)
        assert found.identifiable == (rank == len(matrix)), (d, n)
        assert found.rank in (rank, None)
        assert found.lambda_max == pytest.approx(expected[-1], rel=1e-12)
        assert found.lambda_min == pytest.approx(expected[0], rel=1e-9, abs=1e-13)
        if not found.identifiable:
            assert found.lambda_min == 0.0
        if found.spectrum is not None:
            repeated = [each.value for each in found.spectrum for _ in range(each.multiplicity)]
            np.testing.assert_allclose(repeated, expected, atol=1e-13 * expected[-1])


def test_more_tokens_and_coordinates_than_can_be_enumerated():
    """Against all p^2 expectations of products, for every mode and any moments."""
    for entry, (d, n), mode in product((FOUR, LOPSIDED), ((3, 2), (5, 3)), MODES):
        moments = [float(moment(entry, k)) for k in range(7)]
        expected = ProductExpectations(moments, ways_to_choose_others(n, mode, 2), 2)
        codes = [expected.codes(features_of(d), d, factor) for factor in (0, 1)]
        whole = np.linalg.eigvalsh(expected.of(codes[0][:, None] + codes[1][None]))
        found = found_for(entry, d, n, mode)
        assert found.lambda_min == pytest.approx(whole[0], rel=1e-9)
        assert found.lambda_max == pytest.approx(whole[-1], rel=1e-12)


@pytest.mark.parametrize(("d", "n"), [(1, 2), (2, 2), (3, 2), (5, 3), (6, 4), (12, 30), (40, 7)])
@pytest.mark.parametrize("mode", ["last", "causal"])
def test_blocks_and_permutations_are_two_ways_to_one_spectrum(d, n, mode):
    found = independent_entries(d, n, "gaussian", mode=mode)
    moments = [1.0, 0.0, 1.0, 0.0, 3.0, 0.0, 15.0]
    other = ProductExpectations(moments, ways_to_choose_others(n, mode, 2), 2)
    values = np.linalg.eigvalsh(matrix_of_sums(other, d))
    here = np.array([each.value for each in found.spectrum])
    apart = np.abs(values[:, None] - here)
    assert apart.min(axis=0).max() <= 1e-11 * here[-1]
    assert apart.min(axis=1).max() <= 1e-11 * here[-1]
    assert sum(each.multiplicity for each in found.spectrum) == found.n_features


def test_a_moment_that_is_wrong_is_noticed():
    """Negative control of the comparisons above: the sixth moment changes the spectrum."""
    right, wrong = independent_entries(3, 2, (1, 3, 15)), independent_entries(3, 2, (1, 3, 16))
    assert abs(right.lambda_max - wrong.lambda_max) > 1e-3
    assert abs(right.lambda_min - independent_entries(3, 3, (1, 3, 15)).lambda_min) > 1e-3


def test_gaussian_entries_by_quadrature():
    """Gauss-Hermite with five nodes is exact to degree nine, and features squared have six."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    X = np.array(list(product(nodes, repeat=4))).reshape(-1, 2, 2)
    chances = np.prod(list(product(weights / weights.sum(), repeat=4)), axis=1)
    gram, query = np.einsum("stj,stk->sjk", X, X), X[:, -1]
    psi = (gram[:, [0, 0, 1], [0, 1, 1]][:, :, None] * query[:, None]).reshape(len(X), -1)
    expected = np.linalg.eigvalsh((psi * chances[:, None]).T @ psi)
    found = independent_entries(2, 2, "gaussian")
    assert found.lambda_min == pytest.approx(expected[0], rel=1e-12)
    assert found.lambda_max == pytest.approx(expected[-1], rel=1e-12)


@pytest.mark.parametrize("n", [2, 3, 10, 10**6])
def test_the_eigenvalues_that_have_a_formula(n):
    """m_2^3 (n - 1) and (n + 2) of the triples, and the determinant of the differences."""
    m2, m4 = Fraction(3), Fraction(11)
    found = independent_entries(5, n, (m2, m4, 50))
    values = {each.value: each.multiplicity for each in found.spectrum}
    assert values[27.0 * (n - 1)] == 2 * comb(5, 3)
    assert values[27.0 * (n + 2)] == comb(5, 3)
    block = next(each for each in found.blocks if each.name == "differences")
    (a, b), (_, c) = block.rows
    # In units of m_2, divided by m_2^3: (n - 1)(m_4 - m_2^2)(m_4 + (n - 1) m_2^2).
    assert a * c - b * b == (n - 1) * (m4 / m2**2 - 1) * (m4 / m2**2 + n - 1)


def test_one_token_is_the_counterexample_to_the_lemma():
    """m_2 > 0 and m_4 > m_2^2, and yet minimisers of the population differ."""
    found = independent_entries(3, 1, "gaussian")
    assert (found.identifiable, found.rank, found.n_features) == (False, comb(5, 3), 18)
    X = np.random.default_rng(0).standard_normal((400, 1, 3))
    certificate = pa.certify(X)
    assert (certificate.verdict, certificate.rank) == ("not_identifiable", 10)
    witness = certificate.witness()
    assert witness.training_disagreement < 1e-8
    assert len(witness.input) == 2  # two tokens tell the two layers apart
    assert independent_entries(1, 1, "gaussian").identifiable  # one coordinate: p = 1
    for d in (2, 3, 6):
        assert independent_entries(d, 1, "uniform").rank == comb(d + 2, 3)
        assert independent_entries(d, 2, "uniform").identifiable


def test_entries_of_one_magnitude_are_excluded_with_reason():
    """The condition m_4 > m_2^2 is needed: G[j, j] is the number of tokens for all j."""
    for d, n in ((2, 2), (3, 4), (5, 3)):
        found = independent_entries(d, n, "boolean")
        assert not found.identifiable
        assert found.rank == d + d * comb(d, 2)  # the dimension on the domain "boolean"
    assert independent_entries(1, 1, "boolean").identifiable
    assert found_for(BIASED_SIGNS, 2, 3).lambda_min == 0.0


def test_neither_mean_nor_symmetry_is_needed():
    """Entries 0 or 1, and data of them: real data, not the population."""
    assert found_for(ZERO_OR_ONE, 3, 2).lambda_min == pytest.approx(0.0096505, rel=1e-4)
    X = (np.random.default_rng(0).random((800, 2, 3)) < 0.6).astype(int)
    assert pa.certify(X).identifiable


def test_data_have_the_spectrum_of_their_population():
    rng = np.random.default_rng(0)
    found = independent_entries(2, 3, "uniform", mode="causal")
    certificate = pa.certify(rng.uniform(-1, 1, (20_000, 3, 2)), mode="causal")
    assert certificate.lambda_min == pytest.approx(found.lambda_min, rel=0.05)
    assert certificate.lambda_max == pytest.approx(found.lambda_max, rel=0.05)


def test_units():
    """Entries c times as large: eigenvalues c^6 times, and as many sequences."""
    usual = independent_entries(3, 4, (1, 3, 15, 105, 945, 10395))
    for c in (Fraction(1, 1000), Fraction(7)):
        scaled = [m * c**k for k, m in zip((2, 4, 6, 8, 10, 12), usual.moments.even, strict=True)]
        other = independent_entries(3, 4, scaled)
        assert other.lambda_min == pytest.approx(usual.lambda_min * float(c) ** 6)
        assert other.n_samples() == usual.n_samples()


@pytest.mark.parametrize("excess", [Fraction(1, 10**12), Fraction(1, 10**30), Fraction(10**12)])
@pytest.mark.parametrize("n", [2, 10**9])
def test_small_eigenvalues_keep_their_digits(excess, n):
    """Nearly of one magnitude, or rarely large: eigenvalues multiply to the exact determinant."""
    fourth = 1 + excess
    found = independent_entries(4, n, (1, fourth, 2 * fourth**2))
    for block in found.blocks[:2]:
        rows = blocks.similar(block)
        values = [Fraction(each) for each in blocks.eigenvalues(block)]
        expected = blocks._determinant(rows)
        assert float(prod(values) / expected) == pytest.approx(1.0, rel=1e-6)
    assert found.lambda_min > 0
    assert found.rank == found.n_features


# How many sequences ------------------------------------------------------------------------------


def enumerated_leverage_moment(entry, d, n, mode="last"):
    chances, rows = enumerated(entry, d, n, mode)
    psi, weights = np.array(rows, dtype=float), np.array(chances, dtype=float)
    weights = np.repeat(weights / psi.shape[1], psi.shape[1])
    psi = psi.reshape(len(weights), -1)
    second = (psi * weights[:, None]).T @ psi
    leverage = np.sum(psi * np.linalg.solve(second, psi.T).T, axis=1)
    return eigh((psi * (weights * leverage)[:, None]).T @ psi, second, eigvals_only=True)[-1]


@pytest.mark.parametrize("entry", [THREE, FOUR], ids=["three", "four"])
@pytest.mark.parametrize("mode", ["last", "causal"])
def test_the_leverage_moment_of_an_enumerated_population(entry, mode):
    for d, n in ((1, 1), (1, 3), (2, 2)):
        found = found_for(entry, d, n, mode, 12)
        moments = found.moments.of_unit_entries
        others = ways_to_choose_others(n, mode, 4)
        expected = enumerated_leverage_moment(entry, d, n, mode)
        assert leverage_moment(found.blocks, d, moments, others) == pytest.approx(expected)


def test_the_leverage_moment_with_triples():
    found, others = found_for(THREE, 3, 2, most=12), ways_to_choose_others(2, "last", 4)
    moments = found.moments.of_unit_entries
    expected = enumerated_leverage_moment(THREE, 3, 2)
    assert leverage_moment(found.blocks, 3, moments, others) == pytest.approx(expected)


def test_wide_tokens_are_counted_by_their_kinds(monkeypatch):
    """d = 7 from pairs of features of six coordinates, with weights, and from all there are."""
    found, others = independent_entries(7, 3, "gaussian"), ways_to_choose_others(3, "last", 4)
    moments = found.moments.of_unit_entries
    shown = leverage_moment(found.blocks, 7, moments, others)
    monkeypatch.setattr(blocks, "MOST_USED", 4)
    assert shown == leverage_moment(found.blocks, 7, moments, others)
    monkeypatch.setattr(blocks, "MOST_USED", 2)
    assert shown != leverage_moment(found.blocks, 7, moments, others)  # negative control
    assert shown >= found.n_features


def test_values_and_rows_of_blocks_are_inverse_to_each_other():
    values = dict(zip(blocks.PAIRS, map(Fraction, range(40, 51)), strict=True))
    for d in (3, 4, 9):
        rows = {each.name: each.rows for each in blocks.blocks_of(values, d)}
        assert blocks.values_of(rows, d) == values


def smallest_of_samples(draw, n_sequences, n_trials, mode="last"):
    """lambda_min of Lambda_D for several samples."""
    return np.array([
        pa.certify(draw((n_sequences, 3, 2)), mode=mode).lambda_min for _ in range(n_trials)
    ])  # fmt: skip


@pytest.mark.parametrize("kind", ["gaussian", "uniform"])
def test_so_many_sequences_are_enough(kind):
    """Half of lambda_min is missed in at most a tenth of the trials (here: never)."""
    rng = np.random.default_rng(0)
    draw = rng.standard_normal if kind == "gaussian" else lambda size: rng.uniform(-1, 1, size)
    found = independent_entries(2, 3, kind)
    smallest = smallest_of_samples(draw, found.n_samples(confidence=0.9), 40)
    assert np.mean(smallest < found.lambda_min / 2) <= 0.1
    few = smallest_of_samples(draw, 12, 40)
    assert np.mean(few < found.lambda_min / 2) > 0.5  # negative control


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "d", "n"), [("gaussian", 2, 3), ("gaussian", 3, 4), ("uniform", 3, 4)]
)
def test_a_quarter_of_them_was_enough_and_a_sixteenth_was_not(kind, d, n):
    """The measured words of the derivation."""
    rng = np.random.default_rng(0)
    draw = rng.standard_normal if kind == "gaussian" else lambda size: rng.uniform(-1, 1, size)
    found = independent_entries(d, n, kind)
    for share, enough in ((1, True), (4, True), (16, False)):
        size = (found.n_samples(confidence=0.9) // share, n, d)
        smallest = np.array([pa.certify(draw(size)).lambda_min or 0.0 for _ in range(100)])
        assert (np.mean(smallest < found.lambda_min / 2) <= 0.1) == enough


def test_bounded_entries_need_no_twelfth_moment():
    known, short = independent_entries(3, 4, "uniform"), independent_entries(
        3, 4, known_moments("uniform")[:3]
    )  # fmt: skip
    with pytest.raises(InvalidInput, match="give largest_entry"):
        short.n_samples()
    bounded = short.n_samples(largest_entry=1)
    assert bounded > known.n_samples()  # the bound knows less
    assert known.n_samples(largest_entry=1) == known.n_samples()
    assert found_for(ZERO_OR_ONE, 3, 4).n_samples(largest_entry=1.0) > 18
    with pytest.raises(InvalidInput, match="largest_entry must be at least"):
        short.n_samples(largest_entry=0.7)


def test_numbers_beyond_float64_are_refused():
    found = independent_entries(2, 2, (1, 3, 15))
    with pytest.raises(InvalidInput, match="than float64 can count"):
        found.n_samples(largest_entry=1e200)
    rare = [Fraction(10) ** (60 * k) for k in range(6)]  # not zero once in 10^60
    assert independent_entries(2, 2, rare).n_samples() > 10**60


def test_twelve_moments_with_odd_ones():
    """Odd moments beyond the fifth are not asked for, and not taken to be zero."""
    found = found_for(LOPSIDED, 3, 2, most=12)
    assert found.lambda_min == found_for(LOPSIDED, 3, 2).lambda_min
    with pytest.raises(InvalidInput, match="give largest_entry"):
        found.n_samples()
    assert found.n_samples(largest_entry=2) > found.n_features


def known_moments(kind):
    return independent_entries(1, 1, kind).moments.even


def test_the_numbers_of_both_theorems():
    """8 K log(p / delta) with K by enumeration, and L log(p / delta) / 0.1534.."""
    found = found_for(FOUR, 2, 2, most=12)
    expected = 8 * enumerated_leverage_moment(FOUR, 2, 2) * np.log(6 / 0.1)
    assert found.n_samples(confidence=0.9) == pytest.approx(expected, abs=1)
    # One coordinate, three tokens: n^2 b^6 over E[G^2 x^2] = m_6 + 6 m_2 m_4 + 2 m_2^3.
    largest = 3**2 * 2.0**6 / (10 + 6 * 3 + 2)
    expected = largest * np.log(1 / 0.1) / (0.5 - 0.5 * np.log(2))
    bounded = independent_entries(1, 3, (1, 3, 10)).n_samples(0.9, largest_entry=2)
    assert bounded == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(("entry", "d"), [(FOUR, 2), (LOPSIDED, 2), (THREE, 3)])
def test_no_sequence_has_more_leverage_than_the_bound(entry, d):
    """Over all sequences of two tokens; and the bound that knows the classes is the smaller one."""
    chances, rows = enumerated(entry, d, 2)
    psi = np.array(rows, dtype=float)[:, 0]
    second = (psi * np.array(chances, dtype=float)[:, None]).T @ psi
    leverage = np.sum(psi * np.linalg.solve(second, psi.T).T, axis=1)
    found, largest = found_for(entry, d, 2), max(abs(float(each)) for each in entry)
    bound = found._largest_leverage(largest)
    assert leverage.max() <= bound
    assert bound <= 4 * largest**6 * found.n_features / found.lambda_min * (1 + 1e-12)


def test_more_confidence_needs_more_sequences():
    found = independent_entries(2, 3, "gaussian")
    sizes = [found.n_samples(confidence=c) for c in (0.5, 0.9, 0.99, 0.9999)]
    assert sizes == sorted(set(sizes))
    assert isinstance(found, IndependentEntries)


# Words and misuse --------------------------------------------------------------------------------


def test_sentences():
    assert "lambda_min of the population is 3 (p = 18)" in (
        independent_entries(3, 4, "gaussian").sentence
    )
    one, signs = independent_entries(3, 1, "gaussian"), independent_entries(3, 4, "boolean")
    assert "The rank is 10 of 18." in one.sentence
    assert "one token" in one.sentence
    assert "one magnitude" in signs.sentence
    with pytest.raises(InvalidInput, match="no number of sequences is enough"):
        signs.n_samples()


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"n_dims": 0}, InvalidInput, "n_dims must be"),
        ({"n_tokens": 0}, InvalidInput, "n_tokens must be"),
        ({"mode": "first"}, InvalidInput, "mode must be"),
        ({"moments": "normal"}, InvalidInput, "moments must be one of"),
        ({"moments": (1, 3)}, InvalidInput, "3 or 6 numbers"),
        ({"moments": (1, 3, "a")}, InvalidType, "real numbers"),
        ({"moments": (1, 3, np.nan)}, InvalidInput, "finite"),
        ({"moments": (0, 0, 0)}, InvalidInput, "second moment must be > 0"),
        ({"moments": (1, 0.9, 1)}, InvalidInput, "no distribution has"),
        ({"moments": (1, 3, 8)}, InvalidInput, "no distribution has"),
        ({"moments": (1, 3, 15), "odd_moments": (2, 0, 0)}, InvalidInput, "no distribution has"),
        ({"moments": (1, 3, 15), "odd_moments": (1, 0)}, InvalidInput, "3 numbers, m_1"),
        ({"moments": (1, 1 + 1e-16 + 2.0**-52, 1.1)}, InvalidInput, "fractions"),
        ({"moments": (1e150, 3e300, 15e300)}, InvalidInput, "no distribution has"),
        ({"moments": (1e-120, 3e-240, Fraction(15, 10**360))}, OutOfRange, "do not fit float64"),
    ],
)
def test_misuse_is_named(options, kind, words):
    with pytest.raises(kind, match=words):
        independent_entries(**{"n_dims": 2, "n_tokens": 2, "moments": "gaussian"} | options)


def test_entries_of_one_magnitude_have_one_sixth_moment():
    with pytest.raises(InvalidInput, match="all entries have one magnitude"):
        independent_entries(3, 4, (1, 1, 2))
    assert independent_entries(3, 4, (2, 4, 8)).rank == independent_entries(3, 4, "boolean").rank


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, np.nan, "high"])
def test_confidence_is_a_probability(confidence):
    with pytest.raises((InvalidInput, InvalidType), match="confidence must"):
        independent_entries(2, 2, "gaussian").n_samples(confidence)
