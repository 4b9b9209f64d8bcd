"""Fourier weights of parity layers, by degree: what a soft parity shows of its hidden coordinates.

The output at a row depends on the number w of ones among the s hidden coordinates and on the
number n_+ of tokens with marker 1 (docs/derivations/softmax_parity.md),

    F(w; c) = (-1)^w + delta(w; c),      c = ln(n_+ / n_-) / 2,
    delta(w; c) = sum_t (-1)^t (tanh(z_t + c) - sign z_t),      z_t = beta (2w - 2t + 1).

It is symmetric in the hidden coordinates, so its Fourier coefficient on a product of j of them is
one number a_j(c).  (-1)^w has degree s alone; every other degree comes from delta, which is
computed by itself, so that small weights are as exact as large ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from polyattn.numerics.scaling import EPS

# A bound on the rounding of a coefficient, in units of EPS for each term and unit of its argument.
ROUNDING = 16.0

# From here on hyperbolic tangents are signs: exp(-2 SHARP) is zero.
SHARP = 1e6


@dataclass(frozen=True, eq=False)
class ParityWeights:
    """Squared Fourier coefficients of a parity layer, averaged over mixed markers.

    Attributes
    ----------
    weights : (s + 1,), E[a_j^2; both markers] for a product of j hidden coordinates, j = 0..s
    at_most : (s + 1,), the same with rounding added: never below the true weights
    """

    weights: NDArray[np.float64]
    at_most: NDArray[np.float64]

    def correlation(self, overlap: int) -> float:
        """E[f_U f_U'] of two members that share ``overlap`` hidden coordinates.

        f_U is the output where both markers are present, less its part of degree 0, which is the
        same for all members: sum_j weights_j C(overlap, j) over 1 <= j <= overlap.
        """
        weights = enumerate(self.weights[: overlap + 1].tolist())
        return float(sum(Fraction(each) * comb(overlap, j) for j, each in weights if j))


def parity_weights(n_heads: int, n_tokens: int, beta: float) -> ParityWeights:
    """Weights of the layer of ``n_heads`` heads on sequences of ``n_tokens`` tokens.

    beta may be infinite: then all weight is on degree s.
    Cost: O(s^3) sums of integers and O(s^2 k) hyperbolic tangents; O(s) if beta is that large.
    """
    s = n_heads
    weights, at_most = np.zeros(s + 1), np.zeros(s + 1)
    if beta >= SHARP:
        weights[s] = 1.0 - 2.0 ** (1 - n_tokens)
        return ParityWeights(weights, weights)
    characters = _character_sums(s)
    for share, shift in _marker_counts(n_tokens):
        delta, rounding = _deviation(s, beta, shift)
        coefficients = characters @ delta
        coefficients[s] -= 1.0
        weights += share * coefficients**2
        at_most += share * (np.abs(coefficients) + rounding) ** 2
    return ParityWeights(weights, at_most * (1.0 + ROUNDING * n_tokens * EPS))


def _marker_counts(n_tokens: int) -> Iterator[tuple[float, float]]:
    """Share of all sequences, and ln(n_+ / n_-) / 2, for every n_+ from 1 to k - 1."""
    for positive in range(1, n_tokens):
        share = comb(n_tokens, positive) / 2**n_tokens
        yield share, 0.5 * float(np.log(positive / (n_tokens - positive)))


def _deviation(s: int, beta: float, shift: float) -> tuple[NDArray[np.float64], float]:
    """delta(w; shift) for w = 0..s, and a bound on the rounding of its Fourier coefficients."""
    heads = np.arange(1, s + 1)
    z = beta * (2.0 * np.arange(s + 1)[:, None] - 2.0 * heads + 1.0)
    side = np.sign(z)
    # tanh(y) - 1 = -2 / (1 + e^(2y)), and tanh(y) + 1 = 2 / (1 + e^(-2y)).
    missing = 2.0 * expit(-2.0 * side * (z + shift))
    terms = -side * missing
    size = np.max(np.sum(missing * (1.0 + np.abs(z) + abs(shift)), axis=1))
    return terms @ (-1.0) ** heads, ROUNDING * (s + 4) * EPS * float(size)


def _character_sums(s: int) -> NDArray[np.float64]:
    """(s + 1, s + 1): 2^-s times the sum of a product of j coordinates over all x with w ones.

    Row j holds the coefficients of (z - 1)^j (1 + z)^(s - j), integers, divided last.
    """
    rows = []
    for degree in range(s + 1):
        row = [comb(s - degree, w) for w in range(s - degree + 1)]
        for _ in range(degree):
            row = [low - high for low, high in zip([0, *row], [*row, 0], strict=True)]
        rows.append([each / 2**s for each in row])
    return np.array(rows)
