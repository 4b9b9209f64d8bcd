"""Independent entries: the second moment of the population [yau2024: Lemma A.5], as corrected.

The oracle enumerates all sequences of entries that take few values.
"""

from fractions import Fraction
from itertools import product
from math import comb, log

import numpy as np
import pytest
from scipy.linalg import eigh

import oracle
import polyattn as pa
from polyattn.certify import independent_entries
from polyattn.errors import InvalidInput

HALF = Fraction(1, 2)
# Values of an entry with their probabilities; the first three have no odd moments.
ENTRIES = {
    "three": {-1: Fraction(1, 4), 0: HALF, 1: Fraction(1, 4)},
    "four": {-2: Fraction(1, 8), -1: Fraction(3, 8), 1: Fraction(3, 8), 2: Fraction(1, 8)},
    "signs": {-1: HALF, 1: HALF},
    "zero or one": {0: Fraction(2, 5), 1: Fraction(3, 5)},
    "lopsided": {-1: Fraction(1, 5), 1: HALF, 4: Fraction(3, 10)},
    "biased signs": {-1: Fraction(1, 3), 1: Fraction(2, 3)},
}


def found_for(name, d, n, mode="last", most=6):
    def moment(k):
        return sum(chance * value**k for value, chance in ENTRIES[name].items())

    even = [moment(k) for k in range(2, most + 1, 2)]
    return independent_entries(d, n, even, [moment(k) for k in (1, 3, 5)], mode)


def enumerated(name, d, n, mode="last"):
    """Chances (rows,) and features (rows, p) of all predicted positions of all sequences."""
    values, chances = np.array([*ENTRIES[name].items()], dtype=float).T
    places = np.array(list(product(range(len(values)), repeat=n * d)))
    X, weights = values[places].reshape(-1, n, d), np.prod(chances[places], axis=1)
    psi = oracle.plain_design(X, mode)
    return np.repeat(weights, len(psi) // len(X)) / (len(psi) // len(X)), psi


def population(name, d, n, mode="last"):
    """Lambda by enumeration, and its exact rank: the features are integers."""
    weights, psi = enumerated(name, d, n, mode)
    return (psi * weights[:, None]).T @ psi, oracle.rank_of(oracle.matrix(np.unique(psi, axis=0)))


@pytest.mark.parametrize("mode", oracle.MODES)
@pytest.mark.parametrize("name", ENTRIES)
def test_the_second_moment_is_that_of_the_enumerated_population(name, mode):
    for d, n in [(1, 1), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2), (4, 1)]:
        matrix, rank = population(name, d, n, mode)
        expected, found = np.linalg.eigvalsh(matrix), found_for(name, d, n, mode)
        assert found.n_features == len(matrix)
        assert found.identifiable == (rank == len(matrix)), (d, n)
        assert found.rank in (rank, None)
        assert found.lambda_max == pytest.approx(expected[-1], rel=1e-12)
        size = expected[-1] if found.spectrum is None else 0.0
        assert found.lambda_min == pytest.approx(expected[0], rel=1e-9, abs=1e-13 * (1 + size))
        assert found.identifiable or found.lambda_min == 0.0
        if found.spectrum is not None:
            repeated = [each.value for each in found.spectrum for _ in range(each.multiplicity)]
            np.testing.assert_allclose(repeated, expected, atol=1e-13 * expected[-1])
            assert found.rank == rank


def test_named_moments_are_those_of_their_distribution():
    """One for each pair of numbers, and of ones, and integrals of powers from -1 to 1."""
    for name, moments in (
        ("gaussian", (1, 3, 15, 105, 945, 10395)),
        ("uniform", [Fraction(1, 2 * k + 1) for k in range(1, 7)]),
        ("boolean", (1,) * 6),
    ):
        found, same = (independent_entries(3, 2, each) for each in (name, moments))
        assert found.spectrum == same.spectrum
        assert not found.identifiable or found.n_samples() == same.n_samples()


@pytest.mark.parametrize("n", [2, 3, 10, 10**6])
def test_the_eigenvalues_that_have_a_formula(n):
    """m_2^3 (n - 1) and (n + 2) of the triples, whatever the width; the trace is E ||psi||^2."""
    m2, m4, m6 = 3, 11, 50
    for d in (5, 12, 40):
        found = independent_entries(d, n, (m2, m4, m6))
        values = {each.value: each.multiplicity for each in found.spectrum}
        assert values[27.0 * (n - 1)] == 2 * comb(d, 3)
        assert values[27.0 * (n + 2)] == comb(d, 3)
        # E G_jk^2 x_l^2 by the tokens that occur: the query itself, and n - 1 others.
        own = m6 + (n - 1) * (m4 * m2 + 2 * m4 * m2) + (n - 1) * (n - 2) * m2**3
        other = m4 * m2 + (n - 1) * (m4 * m2 + 2 * m2**3) + (n - 1) * (n - 2) * m2**3
        with_one = m4 * m2 + (n - 1) * m2**3
        trace = d * own + d * (d - 1) * other + d * (d - 1) * with_one
        trace += d * comb(d - 1, 2) * n * m2**3
        assert sum(v * k for v, k in values.items()) == pytest.approx(trace, rel=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_one_token_is_the_counterexample_to_the_lemma(d):
    """m_2 > 0 and m_4 > m_2^2, and yet minimisers of the population differ."""
    found = independent_entries(d, 1, "gaussian")
    assert (found.identifiable, found.rank) == (d == 1, comb(d + 2, 3))
    certificate = pa.certify(np.random.default_rng(0).standard_normal((400, 1, d)))
    assert (certificate.identifiable, certificate.rank) == (d == 1, comb(d + 2, 3))
    assert independent_entries(d, 2, "gaussian").identifiable
    signs = independent_entries(d, 3, "boolean")  # m_4 > m_2^2 is needed
    assert (signs.identifiable, signs.rank) == (d == 1, d + d * comb(d, 2))
    if d > 1:
        assert len(certificate.witness().input) == 2  # two tokens tell the two layers apart
        with pytest.raises(InvalidInput, match="enough"):
            signs.n_samples()


def leverages(name, d, n, mode="last"):
    """Chances, features, Lambda, and psi^T Lambda^-1 psi of every row."""
    weights, psi = enumerated(name, d, n, mode)
    second = (psi * weights[:, None]).T @ psi
    return weights, psi, second, np.sum(psi * np.linalg.solve(second, psi.T).T, axis=1)


@pytest.mark.parametrize("mode", ["last", "causal"])
@pytest.mark.parametrize("name", ["three", "four"])
def test_the_number_of_sequences_is_that_of_the_leverage_moment(name, mode):
    """8 K log(p / delta), K the largest E (v psi)^2 l / E (v psi)^2, by enumeration."""
    for d, n in ((1, 3), (2, 2), (3, 2)):
        weights, psi, second, leverage = leverages(name, d, n, mode)
        fourth = (psi * (weights * leverage)[:, None]).T @ psi
        K = eigh(fourth, second, eigvals_only=True)[-1]
        expected = max(8 * K * log(psi.shape[1] / 0.1), psi.shape[1])
        found = found_for(name, d, n, mode, most=12)
        assert found.n_samples(confidence=0.9) == pytest.approx(expected, abs=1)


def test_the_number_of_sequences_grows_with_the_number_of_features():
    """8 K log(p / delta) with K at least p, and not much more, whatever the width."""
    shares = []
    for d in (5, 6, 7, 20):
        p = d * d * (d + 1) // 2
        shares.append(independent_entries(d, 3, "gaussian").n_samples() / (8 * p * log(p / 0.01)))
    assert min(shares) > 1
    assert np.all(np.abs(np.diff(shares)) < 0.5 * shares[0])


def test_bounded_entries_need_no_twelfth_moment():
    """n^2 b^6 over E[G^2 x^2] of one coordinate; and no sequence has more leverage than said."""
    largest = 3**2 * 2.0**6 / (10 + 6 * 3 + 2)
    expected = largest * log(1 / 0.1) / (0.5 - 0.5 * log(2))
    bounded = independent_entries(1, 3, (1, 3, 10)).n_samples(0.9, largest_entry=2)
    assert bounded == pytest.approx(expected, abs=1)
    for name, d, b in (("four", 2, 2), ("lopsided", 2, 4), ("three", 3, 1)):
        _, psi, second, leverage = leverages(name, d, 2)
        factor = log(psi.shape[1] / 0.1) / (0.5 - 0.5 * log(2))
        said = found_for(name, d, 2).n_samples(0.9, largest_entry=b) / factor
        least = np.linalg.eigvalsh(second)[0]
        assert leverage.max() <= said <= 4 * b**6 * psi.shape[1] / least * (1 + 1e-6) + 1
    known = independent_entries(3, 4, "uniform")
    assert known.n_samples(largest_entry=1) == known.n_samples()  # the bound knows less
    # Without the bound moments are needed, and odd ones are not taken for zero.
    for found in (independent_entries(3, 4, (1, 3, 15)), found_for("lopsided", 3, 2, most=12)):
        with pytest.raises(InvalidInput, match="largest_entry"):
            found.n_samples()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "d", "n"), [("gaussian", 2, 3), ("uniform", 3, 4)])
def test_so_many_sequences_are_enough_and_a_sixteenth_is_not(name, d, n):
    """Half of lambda_min is missed in at most a tenth of the trials."""
    rng = np.random.default_rng(0)
    draw = rng.standard_normal if name == "gaussian" else lambda size: rng.uniform(-1, 1, size)
    found = independent_entries(d, n, name)
    for share, enough in ((1, True), (4, True), (16, False)):
        size = (found.n_samples(confidence=0.9) // share, n, d)
        smallest = np.array([pa.certify(draw(size)).lambda_min or 0.0 for _ in range(60)])
        assert (np.mean(smallest < found.lambda_min / 2) <= 0.1) == enough


def test_misuse_is_named():
    for options, words in (
        ({"n_dims": 0}, "n_dims"), ({"n_tokens": 0}, "n_tokens"), ({"mode": "first"}, "mode"),
        ({"moments": (1, 3)}, "moments"), ({"moments": (1, 3, np.nan)}, "moments"),
        ({"moments": (0, 0, 0)}, "moment"), ({"moments": (1, 0.9, 1)}, "distribution"),
        ({"moments": (1, 3, 8)}, "distribution"), ({"moments": (1, 1, 2)}, "magnitude"),
        ({"moments": (1, 3, 15), "odd_moments": (2, 0, 0)}, "distribution"),
        ({"moments": (1, 1 + 1e-16 + 2.0**-52, 1.1)}, "fractions"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=words):
            independent_entries(**{"n_dims": 2, "n_tokens": 2, "moments": "gaussian"} | options)
    for arguments in ({"confidence": 0.0}, {"confidence": 1.0}, {"largest_entry": 0.7}):
        with pytest.raises(InvalidInput, match=next(iter(arguments))):
            independent_entries(2, 2, (1, 3, 15)).n_samples(**arguments)
