"""Noisy parity layers are learning parity with noise: the reduction, exactly, and attacks on it."""

from collections import Counter
from itertools import product
from math import comb

import numpy as np
import pytest

from polyattn.errors import InvalidInput, InvalidType
from polyattn.softmax import noisy_parity_examples, parity_layer, solve_noisy_parity
from polyattn.softmax.noisy_parity import examples_of_bits, n_votes
from polyattn_papers.tasks.parity_attacks import (
    NoisyParity,
    by_all_sets,
    by_elimination,
    by_halves,
    by_transform,
    layer_learner,
    samples_needed,
)

# Errors have probability 1/8; probabilities are counted in units of 8^-1 for each.
ETA = 1, 7


def all_bits(*shape):
    return [np.array(each, bool).reshape(shape) for each in product([0, 1], repeat=np.prod(shape))]


def giving(hypothesis):
    """A learner that does not look at its examples."""
    return lambda *_: hypothesis


def flips(rng, share, X):
    return np.where(rng.random((*X.shape[:2], 1)) < share, -1.0, 1.0)


def chance(errors):
    return ETA[0] ** int(errors.sum()) * ETA[1] ** int((~errors).sum())


@pytest.mark.parametrize(("hidden", "n", "k"), [((1,), 2, 2), ((0, 1, 2), 3, 2), ((0,), 1, 3)])
def test_the_examples_have_exactly_the_distribution_of_the_noisy_layer(hidden, n, k):
    """By all samples, all noise and all that the reduction draws, with their probabilities."""
    layer = parity_layer(hidden, n, 0, n + 1, 20.0, n_outputs=1)
    pairs = list(product(all_bits(k, n), all_bits(k)))
    A, markers = (np.array(each) for each in zip(*pairs, strict=True))
    parity = np.logical_xor.reduce(A[:, :, hidden], axis=2)
    made, wanted = Counter(), Counter()
    for error, other in product(all_bits(k), repeat=2):
        everywhere = np.broadcast_to(other, markers.shape)
        X, Y = examples_of_bits(A, parity ^ error, markers, everywhere)
        for x, y in zip(X, Y, strict=True):
            made[x.tobytes(), y.tobytes()] += chance(error) * chance(other)
    signs = np.sign(layer(X))
    for error in all_bits(k):
        for x, y in zip(X, signs * (1.0 - 2.0 * error[:, None]), strict=True):
            wanted[x.tobytes(), y.tobytes()] += chance(error) * 8**k
    assert made == wanted
    assert len({X for X, _ in made}) == 2 ** (k * (n + 1))


def test_another_hidden_set_has_another_distribution():
    """Negative control of the comparison above."""
    n, k = 2, 2
    A = np.array(all_bits(k, n))
    markers = np.tile([True, False], (len(A), 1))
    still = np.zeros((len(A), k), bool)
    signs = [examples_of_bits(A, A[:, :, i], markers, still)[1] for i in range(n)]
    layer = parity_layer((0,), n, 0, n + 1, 20.0, n_outputs=1)
    X, _ = examples_of_bits(A, A[:, :, 0], markers, still)
    np.testing.assert_array_equal(np.sign(layer(X)), signs[0])
    assert np.any(np.sign(layer(X)) != signs[1])


@pytest.mark.parametrize("attack", [by_all_sets, by_halves, by_transform])
@pytest.mark.parametrize("hidden", [(2,), (0, 3, 7), (1, 2, 5, 8, 9)])
def test_whoever_learns_the_layer_solves_lpn(attack, hidden):
    noise, n = 0.1, 10
    samples = samples_needed(n, len(hidden), noise)
    # Sequences of four tokens have both markers in seven cases of eight.
    problem = NoisyParity.draw(2 * samples, n, hidden, noise, np.random.default_rng(len(hidden)))
    found = solve_noisy_parity(
        problem.A, problem.b, noise, layer_learner(attack, len(hidden), noise)
    )
    assert found.hidden == hidden
    assert found.disagreement == pytest.approx(noise, abs=0.07)
    assert found.majority == 1.0
    assert found.n_samples == 2 * samples


def test_a_hypothesis_that_errs_on_a_tenth_shows_the_secret_all_the_same():
    hidden, n, rng = (1, 4, 6), 8, np.random.default_rng(3)
    layer = parity_layer(hidden, n, 0, n + 1, 20.0, n_outputs=1)
    problem = NoisyParity.draw(400, n, hidden, 0.2, rng)

    learner = giving(lambda X: layer(X) * flips(rng, 0.1, X))

    found = solve_noisy_parity(problem.A, problem.b, 0.2, learner, agreement=0.9)
    assert found.hidden == hidden
    assert 0.6 < found.majority < 1.0


def test_a_hypothesis_that_knows_nothing_is_found_out():
    problem = NoisyParity.draw(4000, 8, (1, 4, 6), 0.1, np.random.default_rng(4))
    found = solve_noisy_parity(
        problem.A, problem.b, 0.1, giving(lambda X: X[:, :, :1] * X[:, :, 2:3])
    )
    assert found.hidden == (0, 2)
    assert found.disagreement == pytest.approx(0.5, abs=0.05)
    constant = solve_noisy_parity(problem.A, problem.b, 0.1, giving(lambda X: X[:, :, :1] ** 2))
    assert constant.hidden == ()


def test_confidence_is_kept():
    """Votes of a hypothesis that is right as often as it says: wrong in 5 % of trials at most."""
    rng, hidden, n = np.random.default_rng(5), (0,), 4
    problem = NoisyParity.draw(8, n, hidden, 0.0, rng)
    layer = parity_layer(hidden, n, 0, n + 1, 20.0, n_outputs=1)

    learner = giving(lambda X: layer(X) * flips(rng, 0.15, X))

    wrong = sum(
        solve_noisy_parity(
            problem.A, problem.b, 0.0, learner, agreement=0.85, confidence=0.95, random_state=trial
        ).hidden
        != hidden
        for trial in range(40)
    )
    assert wrong <= 4
    assert n_votes(4, 0.85, 0.95) == 55


@pytest.mark.parametrize("attack", [by_all_sets, by_halves, by_transform])
@pytest.mark.parametrize(
    ("hidden", "noise"), [((3,), 0.2), ((0, 1, 10), 0.1), ((0, 2, 4, 5, 7), 0.0)]
)
def test_attacks_find_planted_secrets(attack, hidden, noise):
    n, rng = 11, np.random.default_rng(6)
    problem = NoisyParity.draw(samples_needed(n, len(hidden), noise), n, hidden, noise, rng)
    found = attack(problem)
    assert found.hidden == hidden
    if attack is by_all_sets:
        assert found.work == comb(n, len(hidden))


def test_elimination_needs_no_search_and_no_noise():
    rng, hidden = np.random.default_rng(7), (1, 5, 17, 20, 33, 34, 60)
    clean = NoisyParity.draw(64 + 20, 64, hidden, 0.0, rng)
    found = by_elimination(clean)
    assert found.hidden == hidden
    assert found.work < 64 * 84
    noisy = NoisyParity.draw(64 + 20, 64, hidden, 0.1, rng)
    assert by_elimination(noisy).hidden != hidden
    few = NoisyParity(clean.A[:40], clean.b[:40], 7, 0.0)
    assert by_elimination(few).hidden is None


def test_halves_that_meet_do_less_than_all_sets():
    hidden, n = (1, 4, 8, 11, 15), 20
    problem = NoisyParity.draw(samples_needed(n, 5, 0.1), n, hidden, 0.1, np.random.default_rng(8))
    assert by_halves(problem).hidden == by_all_sets(problem).hidden == hidden
    mean = np.mean([by_halves(problem, seed).work for seed in range(10)])
    assert mean < comb(n, 5)
    # Labels without any secret: nothing is found.
    rng = np.random.default_rng(9)
    random = NoisyParity(problem.A, rng.random(len(problem.b)) < 0.5, 5, 0.1)
    assert by_halves(random).hidden is None


BITS = np.eye(4, dtype=int)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: noisy_parity_examples(BITS, BITS[0], 0.5), InvalidInput, "less than 1/2"),
        (lambda: solve_noisy_parity(BITS, BITS[0], 0.1, None), InvalidType, "must be callable"),
        (lambda: noisy_parity_examples(2 * BITS, BITS[0], 0.1), InvalidInput, "entries 0 and 1"),
        (lambda: noisy_parity_examples(BITS, BITS, 0.1), InvalidInput, "b must be an array of 1"),
        (lambda: noisy_parity_examples(BITS, BITS[0, :3], 0.1), InvalidInput, "as many rows"),
        (
            lambda: noisy_parity_examples(BITS, BITS[0], 0.1, n_tokens=5),
            InvalidInput,
            "5 or more for a sequence of 5 tokens",
        ),
        (
            lambda: solve_noisy_parity(BITS, BITS[0], 0.1, giving(None)),
            InvalidType,
            "must return a hypothesis",
        ),
        (
            lambda: solve_noisy_parity(BITS, BITS[0], 0.1, giving(np.ravel)),
            InvalidInput,
            "one number for each row",
        ),
        (
            lambda: solve_noisy_parity(BITS, BITS[0], 0.1, giving(lambda X: X[..., :1] * np.nan)),
            InvalidInput,
            "with NaN",
        ),
        (lambda: n_votes(4, 0.75, 0.9), InvalidInput, "more than 3/4"),
        (lambda: n_votes(4, 0.9, 1.0), InvalidInput, "confidence must lie between"),
    ],
)
def test_misuse(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_without_noise_elimination_learns_a_layer_of_many_heads_from_few_rows():
    """The cost of learning these layers need not grow with the heads for every learner."""
    hidden, n, k = tuple(range(0, 30, 2)), 40, 4
    rng = np.random.default_rng(10)
    layer = parity_layer(hidden, n, 0, n + 1, 4.0, n_outputs=1)
    X = rng.choice([-1.0, 1.0], size=(20, k, n + 1))
    assert len(hidden) == 15
    assert comb(n, 15) > 10**10
    learned = layer_learner(by_elimination, len(hidden), 0.0)(X, np.sign(layer(X)))
    fresh = rng.choice([-1.0, 1.0], size=(200, k, n + 1))
    np.testing.assert_array_equal(np.sign(learned(fresh)), np.sign(layer(fresh)))
