"""The bound on statistical queries: every quantity by enumeration, and the argument played out."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

from polyattn.errors import InvalidInput
from polyattn.softmax import parity_error_bound, statistical_query_bound
from polyattn.softmax.parity_weights import parity_weights
from polyattn_papers.tasks.parity_queries import (
    CommonOracle,
    ParityFamily,
    informative_queries,
    informative_sign_queries,
    learn_by_correlations,
)

# (n_dims, n_hidden, n_tokens): small enough for all sequences.
SIZES = [(5, 1, 2), (6, 3, 2), (4, 3, 3), (4, 1, 3)]
SHARP = 40.0


@pytest.fixture(scope="module")
def families():
    """Families by size and sharpness, each enumerated once."""
    found = {}

    def get(size, beta):
        if (size, beta) not in found:
            found[size, beta] = ParityFamily.of(*size, beta)
        return found[size, beta]

    return get


@pytest.mark.parametrize("beta", [0.3, 1.0, 3.0, SHARP])
@pytest.mark.parametrize("size", SIZES)
def test_correlations_of_members_are_those_of_all_sequences(size, beta, families):
    family = families(size, beta)
    weights = parity_weights(size[1], size[2], beta)
    parts = family.outputs - family.common
    gram = np.inner(parts, parts) / len(family.X)
    for (row, one), (column, other) in combinations(enumerate(family.sets), 2):
        expected = weights.correlation(len(set(one) & set(other)))
        assert gram[row, column] == pytest.approx(expected, abs=1e-14)
    np.testing.assert_allclose(np.diag(gram), weights.correlation(size[1]), atol=1e-14)


@pytest.mark.parametrize("beta", [0.3, 1.0, 3.0, 12.0])
def test_weights_are_fourier_coefficients_with_rounding_above(beta, families):
    size = (6, 3, 2)
    family, weights = families(size, beta), parity_weights(3, 2, beta)
    hidden, bits = family.sets[0], family.X[:, 0]
    both = family.mixed.mean()
    for degree in range(4):
        character = np.prod(bits[:, list(hidden[:degree])], axis=1)
        # Two tokens that differ in their marker have n_+ = n_- = 1, so that a_j is one number.
        coefficient = np.mean((family.outputs[0] * character)[family.mixed])
        size_of_it = np.sqrt(weights.weights[degree] / both)
        assert size_of_it == pytest.approx(abs(coefficient), rel=1e-12, abs=1e-15)
    assert np.all(weights.at_most >= weights.weights)
    np.testing.assert_allclose(weights.at_most, weights.weights, rtol=1e-9, atol=1e-24)


def test_tiny_weights_are_exact_relative_to_the_deviation():
    """At beta = 20 the outputs are signs in double precision; their low degrees are not zero."""
    s, beta = 3, 20.0
    weights = parity_weights(s, 2, beta).weights
    # To first order delta(w) = +-2 e^(-2 beta) for each of the two nearest heads.
    missing = 2.0 * np.exp(-2.0 * beta)
    delta = np.array([missing, -2 * missing, 2 * missing, -missing])
    characters = np.array([[1, 3, 3, 1], [-1, -1, 1, 1]]) / 8
    np.testing.assert_allclose(weights[:2], 0.5 * (characters @ delta) ** 2, rtol=1e-9, atol=0)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0, SHARP])
@pytest.mark.parametrize("size", SIZES)
def test_no_correlational_query_excludes_more_than_the_bound(size, beta, families):
    family, rng = families(size, beta), np.random.default_rng(0)
    n_dims, n_heads, n_tokens = size
    for query in informative_queries(family, rng):
        answers = family.correlations(query)
        for tolerance in (0.02, 0.1, 0.2, 0.35, 0.45):
            bound = statistical_query_bound(
                n_dims, n_heads, tolerance, n_tokens=n_tokens, beta=beta, queries="correlational"
            )
            assert family.excluded(answers, tolerance) <= bound.most_excluded


@pytest.mark.parametrize("size", SIZES)
def test_no_query_of_signs_excludes_more_than_the_bound(size, families):
    family, rng = families(size, SHARP), np.random.default_rng(1)
    n_dims, n_heads, n_tokens = size
    for query in informative_sign_queries(family, rng):
        answers = family.sign_averages(query)
        for tolerance in (0.1, 0.3, 0.5, 0.7):
            bound = statistical_query_bound(n_dims, n_heads, tolerance, n_tokens=n_tokens)
            assert family.excluded(answers, tolerance) <= bound.most_excluded


def test_the_bound_is_attained_and_a_smaller_one_would_be_wrong(families):
    """Negative control: queries that exclude all that they may, and more than a row allows."""
    family = families((6, 3, 2), SHARP)
    bound = statistical_query_bound(6, 3, 0.49, n_tokens=2, queries="correlational")
    own = -np.prod(family.X[:, 0, list(family.sets[4])], axis=1) * family.mixed
    assert family.excluded(family.correlations(own), 0.49) == bound.most_excluded == 1
    # A sum of several members excludes them all at once, at a smaller tolerance.
    parts = (family.outputs - family.common) * family.mixed
    many = family.excluded(family.correlations(np.sign(parts[:3].sum(axis=0))), 0.249)
    allowed = statistical_query_bound(6, 3, 0.249, n_tokens=2, queries="correlational")
    assert (many, allowed.most_excluded) == (3, 4)
    # Queries of both signs see more than those of one: 2^k - 1 is needed.
    both = np.full((len(family.X), 4), -1.0)
    both[np.arange(len(both)), family.labels[0]] = 1.0
    seen = family.excluded(family.sign_averages(both), 0.7)
    one_row = statistical_query_bound(6, 3, 0.7, n_tokens=2, queries="row_sign")
    assert one_row.most_excluded < seen == 1


def test_what_is_common_is_known_and_not_counted(families):
    """Sequences of one marker alone show -marker for every member: no query learns from them."""
    family = families((6, 3, 2), SHARP)
    unmixed = ~family.mixed * -family.X[:, 0, -1]
    truth, common = family.correlations(unmixed)
    np.testing.assert_allclose(truth, 0.5, atol=1e-15)
    assert common == pytest.approx(0.5, abs=1e-15)


@pytest.mark.parametrize("tolerance", [0.1, 0.24])
def test_a_learner_with_all_queries_succeeds(tolerance, families):
    family = families((6, 3, 2), SHARP)
    for member, hidden in enumerate(family.sets):
        oracle = CommonOracle(family, member, tolerance)
        assert learn_by_correlations(oracle, len(family.sets)) == hidden
        assert oracle.n_queries <= len(family.sets)


@pytest.mark.parametrize("n_queries", [0, 1, 4, 8])
def test_a_learner_with_fewer_queries_fails_on_all_that_are_not_excluded(n_queries, families):
    family, tolerance = families((6, 3, 2), SHARP), 0.49
    found = [
        learn_by_correlations(CommonOracle(family, member, tolerance), n_queries) == hidden
        for member, hidden in enumerate(family.sets)
    ]
    bound = statistical_query_bound(6, 3, tolerance, n_tokens=2, queries="correlational")
    # At most one member for each query and one by chance; this learner attains it.
    assert sum(found) == n_queries * bound.most_excluded + 1
    everyone = statistical_query_bound(
        6, 3, tolerance, n_tokens=2, queries="correlational", success=1.0
    )
    assert everyone.n_queries == len(family.sets) - 1


def learn_by_elimination(oracle, n_queries):
    """An adaptive learner: asks for sums of half of the members that are left, and drops others."""
    family = oracle.family
    parts = (family.outputs - family.common) * family.mixed
    left = np.arange(len(parts))
    for _ in range(n_queries):
        query = np.sign(parts[left[: len(left) // 2 + 1]].sum(axis=0))
        truth, _ = family.correlations(query)
        left = left[np.abs(truth[left] - oracle.correlation(query)) <= oracle.tolerance]
    return family.sets[left[0]]


@pytest.mark.parametrize("n_queries", [1, 2, 4])
def test_an_adaptive_learner_keeps_to_the_bound_as_well(n_queries, families):
    family = families((6, 3, 2), SHARP)
    learned = {}
    for tolerance in (0.01, 0.1, 0.24, 0.4):
        learned[tolerance] = sum(
            learn_by_elimination(CommonOracle(family, member, tolerance), n_queries) == hidden
            for member, hidden in enumerate(family.sets)
        )
        bound = statistical_query_bound(6, 3, tolerance, n_tokens=2, queries="correlational")
        assert learned[tolerance] <= n_queries * bound.most_excluded + 1
    # Coarse answers do hurt it.
    assert learned[0.01] > learned[0.4]


def test_no_hypothesis_is_near_two_members(families):
    family = families((6, 3, 2), 1.0)
    bound = statistical_query_bound(6, 3, 0.1, n_tokens=2, beta=1.0, queries="correlational")
    first, *others = family.outputs
    nearest = min(np.sqrt(np.mean((first - other) ** 2)) for other in others)
    assert bound.radius == pytest.approx(nearest / 2, rel=1e-12)


def test_exact_outputs_of_a_soft_layer_tell_more_than_their_signs(families):
    """Why queries are limited to signs and correlations: low digits count the hidden ones."""
    beta, size = 3.0, (6, 3, 2)
    assert parity_error_bound(3, beta, 2) < 0.02
    family = families(size, beta)
    (least,) = set(family.outputs[:, family.mixed].min(axis=1).round(9))
    tolerance = 0.03
    for hidden, outputs in zip(family.sets, family.outputs, strict=True):
        # With one hidden 1 the output is farther from -1 than with three: averages of
        # x_i [y = least], one for each coordinate, are 1/16 or 0.
        all_ones = family.mixed & (np.abs(outputs - least) < 1e-8)
        averages = np.array([np.mean(all_ones * family.X[:, 0, i]) for i in range(5)])
        assert tuple(np.flatnonzero(averages > 1 / 16 - tolerance)) == hidden
        assert np.all(np.abs(np.delete(averages, hidden)) < 1e-12)
    # Of queries that see signs, a hundred are not enough for a hundred coordinates.
    signs = statistical_query_bound(101, 3, tolerance, n_tokens=2, beta=beta, queries="row_sign")
    assert signs.n_queries > 100


@pytest.mark.parametrize("queries", ["correlational", "row_sign", "all_signs"])
def test_the_bound_grows_with_members_and_falls_with_exactness(queries):
    def needed(n_dims, n_heads, tolerance, beta=np.inf):
        return statistical_query_bound(
            n_dims, n_heads, tolerance, beta=beta, queries=queries
        ).n_queries

    by_heads = [needed(101, s, 0.05) for s in (3, 5, 7)]
    assert by_heads == sorted(by_heads)
    # d^s, up to constants, in d and in s.
    assert by_heads[2] / by_heads[1] == pytest.approx(comb(100, 7) / comb(100, 5), rel=1e-3)
    assert needed(401, 3, 0.05) / needed(201, 3, 0.05) == pytest.approx(8, rel=0.05)
    assert needed(101, 5, 0.025) == pytest.approx(needed(101, 5, 0.05) / 4, rel=0.01)
    # Sharper layers are not easier.
    by_beta = [needed(101, 5, 0.05, beta) for beta in (2.0, 4.0, 16.0, np.inf)]
    assert by_beta == sorted(by_beta)


@pytest.mark.parametrize("queries", ["correlational", "row_sign", "all_signs"])
def test_at_eight_coordinates_the_bound_explains_nothing(queries):
    """What chen2024-hardness shows at d = 8 is not due to it; at d = 64 it would be."""
    for n_heads in (1, 3, 5):
        assert statistical_query_bound(8, n_heads, 0.1, queries=queries).n_queries <= 1
    assert statistical_query_bound(64, 5, 0.1, queries=queries).n_queries > 3000


def test_numbers_beyond_floats_and_degenerate_sizes():
    large = statistical_query_bound(5000, 601, 1e-100)
    assert large.n_members == comb(4999, 601)
    assert large.n_queries > 10**300
    assert "about 10^" in large.sentence
    alone = statistical_query_bound(4, 3, 0.1)
    assert (alone.n_members, alone.n_queries, alone.dimension) == (1, 0, 1)
    assert "says nothing" in str(alone)
    coarse = statistical_query_bound(9, 3, 1.0, queries="row_sign")
    assert (coarse.most_excluded, coarse.n_queries) == (0, None)
    assert "cannot be done with any number" in coarse.sentence
    assert statistical_query_bound(2, 1, 5e-324).n_queries == 0
    soft = statistical_query_bound(64, 5, 0.1, beta=1e-3, queries="correlational")
    assert soft.dimension == 1
    assert soft.radius < 1e-3


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((8, 2, 0.1), {}, "must be odd and less than n_dims"),
        ((3, 3, 0.1), {}, "must be odd and less than n_dims"),
        ((8, 3, 0.0), {}, "tolerance must be greater than 0"),
        ((8, 3, np.nan), {}, "tolerance must be a finite number"),
        ((8, 3, 0.1), {"success": 1.5}, "success must be a number between 0 and 1"),
        ((8, 3, 0.1), {"n_tokens": 1}, "n_tokens must be an integer of at least 2"),
        ((8, 3, 0.1), {"queries": "any"}, "queries must be one of"),
        ((8, 3, 0.1), {"beta": 0.0}, "beta must be greater than 0"),
        ((8, 3, 0.1), {"beta": 0.5}, "signs of outputs are not known to be parities"),
    ],
)
def test_misuse(arguments, options, message):
    with pytest.raises(InvalidInput, match=message):
        statistical_query_bound(*arguments, **options)
