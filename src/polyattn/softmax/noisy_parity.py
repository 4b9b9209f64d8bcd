"""Learning parity with noise, solved by whoever learns noisy parity layers: a reduction.

Learning parity with noise (LPN) with a sparse secret: bits a, uniform in {0, 1}^n, come with
b = <a, u> + e mod 2, where u has s ones and e is 1 with probability eta < 1/2; wanted is u.

A noisy parity layer: sequences X uniform in {-1, 1}^{k x d}, d = n + 1, and for each row the sign
of the output of ``parity_layer``, flipped with probability eta, independently of all else.  Where
both markers are present that sign is (-1)^(ones in U), which is (-1)^b for a token made of a; where
they are not, it is minus the marker.  So samples of LPN become examples of the noisy layer with
exactly its distribution, and a hypothesis that agrees with the layer on more than 3/4 of the rows
with both markers shows u, one coordinate at a time.

Direction: if LPN with sparse secrets is hard, so is learning these layers from noisy examples, by
any method.  Proofs: ``docs/derivations/softmax_parity.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import (
    InvalidInput,
    InvalidType,
    require_confidence,
    require_integer,
    require_number,
)
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.quoting import counted

#: (X, Y) -> hypothesis, which maps sequences (N, k, d) to outputs (N, k, 1) whose signs count.
LayerLearner = Callable[[NDArray[np.float64], NDArray[np.float64]], Callable[[Any], ArrayLike]]

Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class NoisyParityResult:
    """The secret that was read out of a learned layer.

    Attributes
    ----------
    hidden : tuple of int, the coordinates that change the sign of the hypothesis
    disagreement : float
        Share of the samples whose b is not the parity of these coordinates: near eta for the
        secret, near 1/2 for any other set.
    majority : float
        The smallest share of votes by which a coordinate was decided; 1 if all agreed.
    n_samples : int, samples of LPN that were given
    """

    hidden: tuple[int, ...]
    disagreement: float
    majority: float
    n_samples: int


def solve_noisy_parity(
    A: ArrayLike,
    b: ArrayLike,
    flip_rate: float,
    learner: LayerLearner,
    *,
    n_tokens: int = 4,
    agreement: float = 0.9,
    confidence: float = 0.99,
    random_state: RandomState = 0,
) -> NoisyParityResult:
    """Solve LPN with any learner of noisy parity layers.

    Parameters
    ----------
    A, b : (N, n) and (N,), entries 0 and 1
    flip_rate : eta, the probability that an entry of b is flipped, less than 1/2
    learner : callable (X, Y) -> hypothesis
        Called once, with ``noisy_parity_examples``; the hypothesis maps sequences (N, k, n + 1) to
        outputs (N, k, 1), as a layer does.  Their signs count.
    n_tokens : k >= 2
    agreement : float in (3/4, 1]
        What is assumed of the hypothesis: the share of rows with both markers on which its sign is
        that of the layer without noise.  It sets the number of votes.
    confidence : float in (0, 1)

    Guarantee: if the hypothesis keeps ``agreement``, ``hidden`` is the secret with probability at
    least ``confidence``, whatever the learner is.  If it does not, ``disagreement`` tells.
    Cost: one call of the learner, and 2 n ln(n / (1 - confidence)) / (4 agreement - 3)^2 calls of
    the hypothesis on two sequences each.

    >>> import polyattn as pa
    >>> A = np.random.default_rng(0).random((1200, 5)) < 0.5
    >>> learner = lambda X, Y: pa.learn_softmax(X, Y, n_heads=1).layer
    >>> solve_noisy_parity(A, A[:, 2], 0.0, learner).hidden
    (2,)
    """
    rng = require_generator(random_state)
    samples, labels = _as_bits("A", A, 2), _as_bits("b", b, 1)
    if len(samples) != len(labels):
        raise InvalidInput(f"A and b must have as many rows; got {len(samples)} and {len(labels)}.")
    if not callable(learner):
        raise InvalidType(f"learner must be callable; got {type(learner).__name__}.")
    n = samples.shape[1]
    votes = n_votes(n, agreement, confidence)
    X, Y = noisy_parity_examples(samples, labels, flip_rate, n_tokens=n_tokens, random_state=rng)
    hypothesis = learner(X, Y)
    if not callable(hypothesis):
        raise InvalidType(
            "learner must return a hypothesis that can be called with sequences, such as a layer; "
            f"got {type(hypothesis).__name__}."
        )
    shares = [_changed(hypothesis, i, n + 1, n_tokens, votes, rng) for i in range(n)]
    hidden = tuple(i for i, share in enumerate(shares) if share > 0.5)
    parity = np.logical_xor.reduce(samples[:, hidden], axis=1)
    return NoisyParityResult(
        hidden=hidden,
        disagreement=float(np.mean(parity != labels)),
        majority=min(max(share, 1.0 - share) for share in shares),
        n_samples=len(labels),
    )


def noisy_parity_examples(
    A: ArrayLike,
    b: ArrayLike,
    flip_rate: float,
    *,
    n_tokens: int = 4,
    random_state: RandomState = 0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Examples of the noisy parity layer from samples of LPN, k of them for each sequence.

    Parameters
    ----------
    A, b : (N, n) and (N,), entries 0 and 1; the last N mod k samples are left over
    flip_rate : eta < 1/2

    Returns
    -------
    X : (N // k, k, n + 1), entries -1 and 1; the marker is the last coordinate
    Y : (N // k, k, 1), entries -1 and 1

    Guarantee: if A is uniform and b the parity of U with noise eta, X is uniform and Y is the sign
    of the output of ``parity_layer(U, n, 0, n + 1, beta, n_outputs=1)``, for every beta with
    ``parity_error_bound`` below 1, flipped with probability eta at each row by itself.
    """
    rng = require_generator(random_state)
    k, eta = require_integer("n_tokens", n_tokens, least=2), _require_flip_rate(flip_rate)
    samples, labels = _as_bits("A", A, 2), _as_bits("b", b, 1)
    count = len(labels) // k
    if len(samples) != len(labels) or count == 0:
        raise InvalidInput(
            f"A and b must have as many rows, {k} or more for a sequence of {k} tokens; got "
            f"{len(samples)} and {len(labels)}."
        )
    markers = rng.random((count, k)) < 0.5
    flips = rng.random((count, k)) < eta
    used = slice(0, count * k)
    return examples_of_bits(
        samples[used].reshape(count, k, -1), labels[used].reshape(count, k), markers, flips
    )


def examples_of_bits(
    A: Bits, b: Bits, markers: Bits, flips: Bits
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(N, k, n), (N, k) and twice (N, k) -> X and Y: the reduction, with all that is random given.

    Rows of sequences with both markers keep the noise of b; ``flips`` is that of the others.
    """
    mixed = markers.any(axis=1) & ~markers.all(axis=1)
    X = np.concatenate([A, markers[:, :, None]], axis=2) * 2.0 - 1.0
    odd = np.where(np.expand_dims(mixed, 1), b, markers ^ flips)
    return X, 1.0 - 2.0 * odd[:, :, None]


def n_votes(n_bits: int, agreement: float, confidence: float) -> int:
    """Pairs of sequences that decide one coordinate, so that all are right with ``confidence``.

    The hypothesis is right on both of a pair with probability 2 agreement - 1 at least; by
    Hoeffding's inequality a majority of v votes is wrong with probability at most
    exp(-2 v (2 agreement - 3/2)^2).
    """
    share = require_number("agreement", agreement, 1.0)
    sure = require_confidence(confidence)
    if share <= 0.75:
        raise InvalidInput(
            f"agreement must be more than 3/4, or a majority decides nothing; got {agreement}."
        )
    return ceil(log(n_bits / (1.0 - sure)) / (2.0 * (2.0 * share - 1.5) ** 2))


def _changed(
    hypothesis: Callable[[Any], ArrayLike],
    coordinate: int,
    n_dims: int,
    n_tokens: int,
    votes: int,
    rng: np.random.Generator,
) -> float:
    """The share of random sequences on which flipping a coordinate of a row changes its sign."""
    X = rng.choice([-1.0, 1.0], size=(votes, n_tokens, n_dims))
    # Both markers: draw the markers of a sequence until they differ.
    while np.any(alone := np.abs(X[:, :, -1].sum(axis=1)) == n_tokens):
        X[alone, :, -1] = rng.choice([-1.0, 1.0], size=(np.count_nonzero(alone), n_tokens))
    rows = rng.integers(n_tokens, size=votes)
    other, places = X.copy(), np.arange(votes)
    other[places, rows, coordinate] *= -1.0
    signs = [_signs(hypothesis, each)[places, rows] for each in (X, other)]
    return float(np.mean(signs[0] != signs[1]))


def _signs(hypothesis: Callable[[Any], ArrayLike], X: NDArray[np.float64]) -> Bits:
    outputs = np.asarray(hypothesis(X), dtype=np.float64)
    if outputs.shape != (*X.shape[:2], 1) or np.isnan(outputs).any():
        raise InvalidInput(
            f"the hypothesis must give one number for each row, shape {(*X.shape[:2], 1)}; got "
            f"shape {outputs.shape}{' with NaN' if np.isnan(outputs).any() else ''}."
        )
    return np.asarray(outputs[:, :, 0] > 0.0)


def _as_bits(name: str, values: ArrayLike, ndim: int) -> Bits:
    array = np.asarray(values)
    if array.ndim != ndim or array.size == 0 or not np.isin(array, (0, 1)).all():
        raise InvalidInput(
            f"{name} must be an array of {counted(ndim, 'dimension')} with entries 0 and 1; got "
            f"shape {array.shape} of {array.dtype}."
        )
    return array.astype(np.bool_)


def _require_flip_rate(flip_rate: float) -> float:
    eta = require_number("flip_rate", flip_rate, 0.5)
    if eta == 0.5:
        raise InvalidInput(
            "flip_rate must be less than 1/2: such labels show nothing of the secret."
        )
    return eta
