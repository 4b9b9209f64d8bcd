"""Domains: closed forms against brute force, and what is refused."""

from itertools import product

import numpy as np
import pytest

import polyattn as pa
from domain_cases import BUILT_IN
from polyattn import domains
from polyattn.certify.domains.tokens import _climb
from polyattn.certify.verified.sizes import sizes_of_sums
from polyattn.form.layout import Layout
from polyattn.reference.features import cubic_features, summaries
from polyattn.reference.layer import with_constant

DISCRETE = [kind for kind, case in BUILT_IN.items() if case.alphabet]


def features_of(sequences: list, mode: str, bias: bool) -> np.ndarray:
    rows = []
    for sequence in sequences:
        tokens = with_constant(sequence) if bias else sequence
        rows += [cubic_features(G, x) for G, x in summaries(tokens, mode)]
    return np.array(rows)


def test_the_figures_of_the_theory():
    assert domains.Real().space(Layout.plain(3)).dimension == 18
    assert domains.Boolean().space(Layout.plain(3)).dimension == 12
    assert domains.OneHot().space(Layout.plain(3)).dimension == 9
    assert domains.Real(lengths=1).space(Layout.plain(3)).dimension == 10


@pytest.mark.parametrize("kind", BUILT_IN)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("lengths", [1, 2, 3, (1, 2), (2, 4)])
@pytest.mark.parametrize("n_dims", range(1, 9))
def test_the_dimension_is_the_rank_of_many_samples(kind, n_dims, lengths, bias):
    space = kind(lengths=lengths).space(Layout.plain(n_dims, bias=bias))
    expected = BUILT_IN[kind].dimension(n_dims, bias, lengths == 1)
    assert space.dimension == expected
    rng = np.random.default_rng(n_dims)
    least, most = (lengths, lengths) if isinstance(lengths, int) else lengths
    count = 40 + (2 if kind is domains.Real else 20) * expected
    sizes = (int(rng.integers(least, most + 1)) for _ in range(count))
    X = [BUILT_IN[kind].tokens(rng, n_tokens, n_dims) for n_tokens in sizes]
    stats = pa.Moments(n_dims, bias=bias).update(X)
    assert np.linalg.matrix_rank(stats.gram, tol=1e-9 * np.linalg.norm(stats.gram)) == expected


@pytest.mark.parametrize(("n_dims", "n_tokens"), [(1, 1), (1, 3), (2, 1), (2, 2), (3, 1), (3, 2)])
@pytest.mark.parametrize("kind", DISCRETE)
@pytest.mark.parametrize("mode", ["last", "causal", "full"])
def test_the_dimension_is_the_rank_of_all_sequences(kind, n_dims, n_tokens, mode):
    alphabet = BUILT_IN[kind].alphabet(n_dims)
    everything = [np.array(tokens) for tokens in product(alphabet, repeat=n_tokens)]
    for bias in (False, True):
        rank = np.linalg.matrix_rank(features_of(everything, mode, bias))
        assert kind(lengths=n_tokens).space(Layout.plain(n_dims, bias=bias)).dimension == rank


@pytest.mark.parametrize("kind", BUILT_IN)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n_tokens", [1, 3])
def test_every_feature_follows_from_the_representatives(kind, bias, n_tokens):
    rng = np.random.default_rng(0)
    for n_dims in (1, 2, 3, 4):
        space = kind(lengths=n_tokens).space(Layout.plain(n_dims, bias=bias))
        X = [BUILT_IN[kind].tokens(rng, n_tokens, n_dims) for _ in range(30)]
        psi = features_of(X, "last", bias)
        np.testing.assert_array_equal(psi[:, space.columns] @ space.expansion.toarray().T, psi)


def test_a_space_makes_the_features_of_the_reference():
    rng = np.random.default_rng(0)
    sequence = rng.standard_normal((4, 3))
    G, x = summaries(sequence, "last")[0]
    space = domains.Boolean().space(Layout.plain(3))
    pairs = G[np.triu_indices(3)][:, None]
    expected = cubic_features(G, x)[space.columns]
    np.testing.assert_allclose(space.features(pairs, x[:, None])[:, 0], expected, rtol=1e-15)
    sizes = space.features(sizes_of_sums(space.layout, pairs), np.abs(x[:, None]))[:, 0]
    assert np.all(sizes >= np.abs(expected) * (1 - 1e-15))
    vector = np.arange(space.dimension, dtype=float)
    assert space.embed(vector) @ cubic_features(G, x) == pytest.approx(vector @ expected)


@pytest.mark.parametrize(
    ("domain", "X", "words"),
    [
        ("boolean", np.zeros((3, 2, 2)), "does not belong to the domain 'boolean'"),
        ("one_hot", np.ones((3, 2, 2)), "does not belong to the domain 'one_hot'"),
        ("one_hot", np.zeros((3, 2, 2)), "does not belong"),
        (domains.Real(lengths=3), np.ones((3, 2, 2)), "has 2 tokens"),
        (domains.Boolean(lengths=(3, None)), np.ones((3, 2, 2)), "at least 3 tokens"),
        ("complex", np.ones((3, 2, 2)), "domain must be one of"),
        (None, np.ones((3, 2, 2)), "domain must be one of"),
    ],
)
def test_data_outside_the_domain_are_refused(domain, X, words):
    with pytest.raises(ValueError, match=words):
        pa.certify(X, domain=domain)


@pytest.mark.parametrize("lengths", [0, -1, (3, 2), (0, 1)])
def test_impossible_lengths_are_refused(lengths):
    with pytest.raises(ValueError, match="lengths must satisfy"):
        domains.Real(lengths=lengths)


@pytest.mark.parametrize("lengths", [1.5, "two", (1, 2.5), True])
def test_lengths_are_integers(lengths):
    with pytest.raises(TypeError, match="lengths must be"):
        domains.Boolean(lengths=lengths)


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        (None, "boolean"),
        (1, "boolean (1 token)"),
        (3, "boolean (3 tokens)"),
        ((2, 6), "boolean (2 to 6 tokens)"),
        ((2, None), "boolean (at least 2 tokens)"),
    ],
)
def test_lengths_are_named(lengths, words):
    assert str(domains.Boolean(lengths)) == words


def test_a_finite_domain_takes_any_iterable_and_nothing_else():
    X = np.random.default_rng(0).choice([-1, 1], (5, 3, 2))
    for given in (X, list(X), tuple(X), iter(X)):
        np.testing.assert_array_equal(domains.Finite(given).batch.values, X.reshape(15, 2))
    with pytest.raises(pa.errors.InvalidInput, match="the domain's sequences"):
        _ = domains.Finite(7).batch


def test_samples_are_those_of_the_seed():
    """Certificates name samples by their digest: with another default they would be others."""
    X = np.random.default_rng(0).standard_normal((4, 2, 3))
    domain = domains.Sampled(lambda rng: rng.standard_normal((2, 3)), 4)
    np.testing.assert_array_equal(domain.batch.values, X.reshape(8, 3))


def test_contexts_of_both_signs_are_tried():
    """A constant coordinate tells them apart."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((3, 3))
    form = root + root.T
    contexts = domains.Real().best_contexts(form, rng, 2.0)
    for linear in rng.standard_normal((20, 3)):
        values = np.einsum("cj,jk,ck->c", contexts, form, contexts) + contexts @ linear
        for vector in np.linalg.eigh(form)[1].T[[0, 2]] * 2.0 * np.sqrt(3):
            value, slope = vector @ form @ vector, vector @ linear
            shown = max(abs(value + slope), abs(value - slope))
            assert np.max(np.abs(values)) >= shown * (1 - 1e-12)


@pytest.mark.parametrize("mode", ["last", "causal", "full"])
@pytest.mark.parametrize("bias", [False, True])
def test_the_sequence_that_shows_a_direction_most_is_found(mode, bias):
    rng = np.random.default_rng(0)
    sequences = [rng.standard_normal((length, 2)) for length in (2, 1, 4, 3, 2)]
    domain = domains.Finite(sequences)
    width = 2 + bias
    for direction in rng.standard_normal((12, width * width * (width + 1) // 2)):
        shown = [np.abs(features_of([x], mode, bias) @ direction).max() for x in sequences]
        found, context = domain.separating_input(direction, Layout.plain(2, mode, bias), 1)
        assert context is None
        # Divided by 2, where the constant of bias counts eight times as much.
        expected = sequences[int(np.argmax(shown))]
        np.testing.assert_array_equal(found, expected)


def test_samples_come_from_a_seed_or_a_generator_that_goes_on():
    def drawn(random_state):
        domain = domains.Sampled(lambda rng: rng.standard_normal((2, 3)), 4, random_state)
        return domain.batch.values

    np.testing.assert_array_equal(drawn(3), drawn(np.random.default_rng(3)))
    rng = np.random.default_rng(3)
    assert np.any(drawn(rng) != drawn(rng))


@pytest.mark.parametrize("n_samples", [1, 20, 300])
def test_samples_that_all_agree_cover_a_share_with_confidence(n_samples):
    domain = domains.Sampled(lambda rng: rng.standard_normal((2, 3)), n_samples)
    share = domain.covered(0.99)
    assert 0.0 < share < 1.0
    assert share**n_samples == pytest.approx(0.01)  # with less, all would hardly have agreed


def test_signs_are_flipped_until_no_flip_helps():
    rng = np.random.default_rng(0)
    for _ in range(30):
        root = rng.standard_normal((4, 4))
        form, start = root + root.T, rng.choice([-1.0, 1.0], 4)
        found = _climb(form, start)
        assert np.all(np.abs(found) == 1)
        for flip in 1.0 - 2.0 * np.eye(4):
            y = flip * found
            assert y @ form @ y <= found @ form @ found + 1e-12
