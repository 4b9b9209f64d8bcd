"""Sums of products of values and keys in exact arithmetic, as each predicted position sees them.

Modulo a prime nothing is lost by subtraction, so windows are differences of running sums, and a
decay is taken out before a running sum and put in again: S_t = g^t sum_s g^-s v_s k_s^T.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact.columns import ExactTokens
from polyattn.certify.exact.modular import INNER, Residues, centre
from polyattn.certify.exact.numbers import number_residues
from polyattn.form.form import Scale

# Terms added together: so many products of residues, and a carry, are exact.
TOKENS = INNER - 1

# From so many tokens per sequence on, one small product each beats sums of pair products.
LONG_SEQUENCE = 32


@dataclass(frozen=True, eq=False)
class ScaledProducts:
    """Products of two columns that are summed with the weights of one scale."""

    scale: Scale
    value: NDArray[np.intp]  # (k,): columns of the tokens
    key: NDArray[np.intp]
    places: slice  # where these products stand among all that are summed

    @property
    def is_plain(self) -> bool:
        """Whether all tokens count, and equally."""
        return self.scale == Scale(0, None, 1.0)

    def powers(self, prime: int | None, length: int, inverse: bool = False) -> Residues | None:
        """decay^o for o below ``length`` modulo the prime, or decay^-o; None where all are 1."""
        if self.scale.decay == 1.0 or prime is None:
            return None
        base = decay_residue(self.scale.decay, prime)
        base = pow(base, -1, prime) if inverse else base
        powers = np.empty(length)
        power = 1
        for o in range(length):
            powers[o] = power
            power = power * base % prime
        centre(powers, prime)
        return powers


def decay_residue(decay: float, prime: int) -> int:
    """A decay, which is m 2^-f, modulo a prime; 0 where the prime divides m."""
    return int(number_residues(np.array([decay]), prime)[0]) % prime


def whole_sums(
    tokens: ExactTokens,
    products: Sequence[ScaledProducts],
    n_products: int,
    prime: int | None,
    first: int,
    stop: int,
) -> Residues:
    """Sums over sequences first..stop as the last token sees them, (sequences, n_products)."""
    offsets = tokens.batch.offsets
    sums = np.zeros((stop - first, n_products))
    for start in range(int(offsets[first]), int(offsets[stop]), TOKENS):
        end = min(start + TOKENS, int(offsets[stop]))
        owner = int(np.searchsorted(offsets, start, side="right")) - 1
        beyond = int(np.searchsorted(offsets, end))
        starts = np.maximum(offsets[owner:beyond], start) - start
        columns = tokens.read(slice(start, end), prime)
        touched = sums[owner - first : beyond - first]
        for part in products:
            into = touched[:, part.places]
            if part.is_plain and columns.shape[1] >= LONG_SEQUENCE * len(starts):
                segments = np.split(columns, starts[1:], axis=1)
                into += np.stack([(each @ each.T)[part.value, part.key] for each in segments])
            else:
                terms = columns[part.value] * columns[part.key]
                if not part.is_plain:
                    lengths = np.diff([*starts, end - start])
                    last = np.repeat(offsets[owner + 1 : beyond + 1], lengths) - 1
                    terms = _weighted(terms, part, last - np.arange(start, end), prime)
                into += np.add.reduceat(terms, starts, axis=1).T
            centre(into, prime)
    return sums


def running_sums(
    columns: Residues, part: ScaledProducts, starts: NDArray[np.int64], prime: int | None
) -> Residues:
    """Sums of one scale (k, tokens) that each token of whole sequences sees up to its place.

    starts : the places (sequences,) at which sequences begin
    """
    n_tokens = columns.shape[1]
    lengths = np.diff([*starts, n_tokens])
    position = np.arange(n_tokens) - np.repeat(starts, lengths)
    terms = columns[part.value] * columns[part.key]
    centre(terms, prime)
    inverse = part.powers(prime, int(lengths.max()), inverse=True)
    if inverse is not None:
        terms *= inverse[position]
        centre(terms, prime)
    total = np.zeros((len(terms), n_tokens + 1))
    np.cumsum(terms, axis=1, out=total[:, 1:])
    begin = np.repeat(starts, lengths)
    # Tokens start <= o < stop before: from place t - stop + 1 to place t - start.
    until = np.maximum(np.arange(n_tokens) + 1 - part.scale.start, begin)
    sums = total[:, until] - total[:, _lowest(part.scale, begin, n_tokens)]
    centre(sums, prime)
    powers = part.powers(prime, int(lengths.max()))
    if powers is not None:
        sums *= powers[position]
        centre(sums, prime)
    return sums


def own_products(
    columns: Residues, products: Sequence[ScaledProducts], n_products: int, prime: int | None
) -> Residues:
    """The products of each token alone, (tokens, n_products)."""
    result = np.empty((columns.shape[1], n_products))
    for part in products:
        result[:, part.places] = (columns[part.value] * columns[part.key]).T
    centre(result, prime)
    return result


def _lowest(scale: Scale, begin: NDArray[np.int64], n_tokens: int) -> NDArray[np.int64]:
    if scale.stop is None:
        return begin
    return np.maximum(np.arange(n_tokens) + 1 - scale.stop, begin)


def _weighted(
    terms: Residues, part: ScaledProducts, distances: NDArray[np.int64], prime: int | None
) -> Residues:
    """Terms (k, tokens) times the weights of a scale at these distances from the last token."""
    scale = part.scale
    attended = distances >= scale.start
    if scale.stop is not None:
        attended &= distances < scale.stop
    weights = attended.astype(np.float64)
    powers = part.powers(prime, int(distances.max()) + 1)
    if powers is not None:
        weights *= powers[distances]
        centre(terms, prime)
    return terms * weights
