"""Parity layers: the closed form, the bound on queries by enumeration, and parity with noise."""

from fractions import Fraction
from itertools import combinations, product
from math import ceil, comb

import numpy as np
import pytest

import polyattn as pa
from oracle import softmax_outputs
from polyattn.errors import PolyattnError
from polyattn_papers.tasks import parity_attacks
from polyattn_papers.tasks.parity_attacks import NoisyParity, layer_learner

parity_layer, parity_outputs = pa.softmax.parity_layer, pa.softmax.parity_outputs
examples, solve = pa.softmax.noisy_parity_examples, pa.softmax.solve_noisy_parity
bound = pa.softmax.statistical_query_bound

# (hidden, marker, n_dims, n_tokens): small enough for all 2^(n_tokens n_dims) sequences.
CASES = [((1,), 0, 2, 2), ((0,), 2, 3, 3), ((0, 1, 3), 2, 4, 2)]


def all_inputs(n_tokens, n_dims):
    signs = np.array(list(product([-1.0, 1.0], repeat=n_tokens * n_dims)))
    return signs.reshape(-1, n_tokens, n_dims)


def mixed(X, marker):
    """Whether both markers occur."""
    return np.abs(X[:, :, marker].sum(axis=1)) < X.shape[1]


@pytest.mark.parametrize("beta", [0.3, 2.0, 50.0])
@pytest.mark.parametrize(("hidden", "marker", "n_dims", "n_tokens"), CASES)
def test_the_closed_form_is_the_layer_and_keeps_its_bound(hidden, marker, n_dims, n_tokens, beta):
    X = all_inputs(n_tokens, n_dims)
    layer = parity_layer(hidden, marker, 1, n_dims, beta, n_outputs=2)
    assert layer.n_heads == len(hidden)
    outputs = parity_outputs(X, hidden, marker, beta)
    literal = np.array(softmax_outputs(layer, X))
    np.testing.assert_allclose(literal[..., 1], outputs, rtol=0, atol=1e-14)
    assert not np.any(literal[..., 0])
    parity = (-1.0) ** np.sum(X[:, :, list(hidden)] > 0, axis=2)
    both = mixed(X, marker)
    error = np.abs(outputs - parity)[both].max()
    most = pa.softmax.parity_error_bound(len(hidden), beta, n_tokens)
    assert error <= most + 1e-15
    if len(hidden) == 1:
        assert error == pytest.approx(most, abs=1e-15)  # it cannot be improved
    np.testing.assert_allclose(outputs[~both], -X[~both][:, :, marker], atol=1e-15)


@pytest.mark.parametrize("beta", [0.5, 2.0, 40.0])
@pytest.mark.parametrize("size", [(6, 3, 2), (4, 3, 3), (5, 1, 2)])
def test_no_query_excludes_more_members_than_the_bound(size, beta):
    """Queries that exclude much: signs of sums of members; correlations are those enumerated."""
    (n_dims, n_heads, n_tokens), rng = size, np.random.default_rng(0)
    # All members on all sequences; the last coordinate is marker.
    X, sets = all_inputs(n_tokens, n_dims), combinations(range(n_dims - 1), n_heads)
    outputs = np.array([parity_outputs(X, each, n_dims - 1, beta) for each in sets])
    group = np.unique(X[:, :, -1], axis=0, return_inverse=True)[1].ravel()
    # Outputs at the first row, less what all members have in common; signs of all, as a number.
    parts = outputs[:, :, 0] - (np.bincount(group, outputs[0, :, 0]) / np.bincount(group))[group]
    labels, both = (outputs > 0) @ (1 << np.arange(n_tokens)), mixed(X, n_dims - 1)
    n_members, n_inputs = parts.shape

    def limit(tolerance, queries):
        return bound(n_dims, n_heads, tolerance, n_tokens=n_tokens, beta=beta, queries=queries)

    gram = parts @ parts.T / n_inputs
    found = limit(0.1, "correlational")
    assert found.n_members == n_members
    if n_members > 1:
        others = gram[~np.eye(n_members, dtype=bool)]
        assert found.correlation == pytest.approx(others.max() / gram[0, 0], rel=1e-9, abs=1e-12)
        apart = 2 * (gram[0, 0] - gram[0, 1:])
        assert found.radius == pytest.approx(np.sqrt(apart.min()) / 2, rel=1e-9)
    at = np.arange(n_inputs)
    for count in [*range(1, n_members + 1), *[n_members] * 5]:
        chosen = rng.permutation(n_members)[:count]
        signs = rng.choice([-1.0, 1.0], size=count)
        query = np.sign(signs @ (parts * both)[chosen])
        told = {"correlational": np.abs(parts @ query) / n_inputs}
        of_labels = np.full((n_inputs, 2**n_tokens), -1.0)
        of_labels[at, labels[chosen]] = 1.0
        own = of_labels[at, labels] - of_labels.mean(axis=1)
        if beta > 3:
            told["all_signs"] = np.abs(np.mean(own * both, axis=1))
        for (queries, by_query), tolerance in product(told.items(), (0.02, 0.1, 0.3, 0.45)):
            most = limit(tolerance, queries).most_excluded
            assert np.count_nonzero(by_query > tolerance * (1 + 1e-12)) <= most


@pytest.mark.parametrize(("queries", "n_signs"), [("row_sign", 1), ("all_signs", 4)])
def test_the_bound_for_signs_is_its_formula(queries, n_signs):
    """Less than p^2 (2^r - 1) / tau^2 members are told by one query; success takes the others."""
    for n_dims, n_heads, tolerance, success in (
        (64, 5, 0.1, 0.5), (101, 7, 0.05, 1.0), (8, 3, 0.1, 0.5), (401, 3, 0.02, 0.1), (9, 3, 1, 1),
        (4, 3, 0.1, 0.5),
    ):  # fmt: skip
        found = bound(n_dims, n_heads, tolerance, queries=queries, success=success)
        members = comb(n_dims - 1, n_heads)
        p = 1 - Fraction(2, 16)
        most = ceil((p / Fraction(tolerance)) ** 2 * (2**n_signs - 1)) - 1
        assert (found.n_members, found.most_excluded) == (members, min(most, members))
        wanted = Fraction(success) * members - 1
        needed = ceil(wanted / min(most, members)) if most else None
        assert found.n_queries == needed


@pytest.mark.parametrize("n_tokens", [2, 3])
def test_examples_of_noisy_parity_are_those_of_the_noisy_layer(n_tokens):
    hidden, n, eta, rng = (0, 2, 3), 4, 0.2, np.random.default_rng(0)
    A = rng.random((30_000 * n_tokens + 1, n)) < 0.5
    flipped = rng.random(len(A)) < eta
    b = np.logical_xor.reduce(A[:, hidden], axis=1) ^ flipped
    X, Y = examples(A, b, eta, n_tokens=n_tokens, random_state=1)
    assert (X.shape, Y.shape) == ((30_000, n_tokens, n + 1), (30_000, n_tokens, 1))
    np.testing.assert_array_equal(X[:, :, :n] > 0, A[:-1].reshape(-1, n_tokens, n))
    # Markers are uniform, and by themselves; signs are those of the layer but for the noise.
    patterns = (X[:, :, n] > 0) @ (1 << np.arange(n_tokens))
    shares = np.bincount(patterns, minlength=2**n_tokens) / len(X)
    np.testing.assert_allclose(shares, 2.0**-n_tokens, atol=5 * np.sqrt(0.25 / len(X)))
    layer = parity_layer(hidden, n, 0, n + 1, 20.0, n_outputs=1)
    wrong, both = (np.sign(layer(X)) != Y)[..., 0], mixed(X, n)
    np.testing.assert_array_equal(wrong[both], flipped[:-1].reshape(-1, n_tokens)[both])
    assert wrong[~both].mean(axis=0) == pytest.approx([eta] * n_tokens, abs=0.02)
    assert np.corrcoef(wrong[~both].T)[0, 1] == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize(
    ("attack", "hidden", "noise"),
    [("by_all_sets", (2,), 0.1), ("by_halves", (0, 3, 7), 0.2), ("by_transform", (1, 2, 5), 0.0)],
)
def test_whoever_learns_the_layer_finds_the_secret(attack, hidden, noise):
    n, found_by = 10, getattr(parity_attacks, attack)
    count = 2 * parity_attacks.samples_needed(n, len(hidden), noise)
    problem = NoisyParity.draw(count, n, hidden, noise, np.random.default_rng(len(hidden)))
    assert found_by(problem).hidden == hidden
    learner = layer_learner(found_by, len(hidden), noise)
    found = solve(problem.A, problem.b, noise, learner)
    assert (found.hidden, found.majority, found.n_samples) == (hidden, 1.0, count)
    parity = np.logical_xor.reduce(problem.A[:, hidden], axis=1)
    assert found.disagreement == np.mean(parity != problem.b)


def test_hypotheses_that_err_or_know_nothing():
    rng, hidden, n = np.random.default_rng(3), (1, 4, 6), 8
    layer = parity_layer(hidden, n, 0, n + 1, 20.0, n_outputs=1)
    problem = NoisyParity.draw(4000, n, hidden, 0.1, rng)

    def learned(hypothesis, **options):
        return solve(problem.A, problem.b, 0.1, lambda *_: hypothesis, **options)

    # Right on 85 rows of 100, with as many votes as that needs: hardly ever wrong.
    def errs(X):
        return layer(X) * np.where(rng.random((*X.shape[:2], 1)) < 0.15, -1.0, 1.0)

    options = {"agreement": 0.85, "confidence": 0.95}
    tries = [learned(errs, random_state=seed, **options) for seed in range(20)]
    assert sum(found.hidden != hidden for found in tries) <= 3
    assert all(0.5 < found.majority < 1.0 for found in tries)
    nothing = learned(lambda X: X[:, :, :1] * X[:, :, 2:3])
    assert nothing.hidden == (0, 2)
    assert nothing.disagreement == pytest.approx(0.5, abs=0.05)
    assert learned(lambda X: X[:, :, :1] ** 2).hidden == ()


BITS = np.eye(4, dtype=int)
MISUSE = [
    *((lambda h=h: parity_layer(h, 2, 0, 3, 1.0), "odd") for h in ((0, 1), (), (0, 0, 1))),
    *((lambda h=h: parity_layer(h, 0, 0, 3, 1.0), "hidden") for h in ((0,), (3,))),
    (lambda: parity_layer((1,), 0, 0, 3, 0.0), "beta"),
    *((lambda s=s: bound(*s, 0.1), "n_heads") for s in ((8, 2), (3, 3))),
    (lambda: bound(8, 3, 0.0), "tolerance"),
    (lambda: bound(8, 3, 0.1, beta=0.5), "beta"),
    (lambda: examples(BITS, BITS[0], 0.5), "flip_rate"),
    (lambda: examples(2 * BITS, BITS[0], 0.1), "A must"),
    (lambda: examples(BITS, BITS[0, :3], 0.1), "rows"),
    (lambda: examples(BITS, BITS[0], 0.1, n_tokens=5), "5 tokens"),
    (lambda: solve(BITS, BITS[0], 0.1, lambda *_: np.ravel), "hypothesis"),
    (lambda: solve(BITS, BITS[0], 0.1, print, agreement=0.75), "agreement"),
    (lambda: solve(BITS, BITS[0], 0.1, print, confidence=1.0), "confidence"),
]


def test_misuse_is_refused_by_name():
    for call, word in MISUSE:
        with pytest.raises(PolyattnError, match=word):
            call()
