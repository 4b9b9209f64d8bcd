"""What each sequence does to a least-squares fit: its leverage, and its part in the fit's variance.

With Q an orthonormal basis of all rows of features, Q_i the rows of sequence i, H_i = Q_i Q_i^T and
r_i its residuals, the sequence moves the fit by about  g_i = Q_i^T (1 - H_i)^-1/2 r_i,  and the
features of a fresh sequence look like  (1 - H_i)^-1 Q_i, which is how i looks to a fit without it.
So the squared distance of the fit from the best layer, over fresh sequences, is about

    sum_i  g_i^T W g_i = tr(W M),    W = sum_i Q_i^T (1 - H_i)^-2 Q_i,    M = sum_i g_i g_i^T.

docs/derivations/generalisation.md says what is promised with it, and when.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.solve.direct import column_scale, triangular_rcond
from polyattn.solve.sequence_rows import sequence_rows
from polyattn.solve.structure import rank_tolerance
from polyattn.stats import TriangularFactor
from polyattn.stats.passes import factor_of, folded, of_parts
from polyattn.stats.rows import Rows

# Leverages are known to rounding: those nearer to one count as so near.
FULL_LEVERAGE = 1.0 - 1e-9


@dataclass(frozen=True)
class Influence:
    """One number for each sequence (N,), in the scaled units of the rows, and what they share.

    leverage : the largest share of a sequence in any of its own fitted values
    left_out, fitted : its squared error by the minimiser of the others, and by that of all
    own : its squared error by the coefficients that were given
    power : its squared targets
    noise, norm : its part in M and in W of tr(W M); each sums up to that trace
    apart : how far the given coefficients are from the minimiser, for the sequence left out
    freedom : tr(W M)^2 / ||W^1/2 M W^1/2||^2, degrees of freedom of the distance
    rank : dimension of the span of the features
    """

    leverage: NDArray[np.float64]
    left_out: NDArray[np.float64]
    fitted: NDArray[np.float64]
    own: NDArray[np.float64]
    power: NDArray[np.float64]
    noise: NDArray[np.float64]
    norm: NDArray[np.float64]
    apart: NDArray[np.float64]
    freedom: float
    rank: int


class RowBasis(NamedTuple):
    """Features (n, p) @ ``turn`` (p, rank) are rows of Q; the minimiser is ``fit`` there."""

    turn: NDArray[np.float64]
    fit: NDArray[np.float64]  # (rank, e)


class _Turned(NamedTuple):
    """Rows of a sequence turned so that 1 - H_i is diagonal; in mode last, many sequences."""

    basis: NDArray[np.float64]  # (k, rank)
    rest: NDArray[np.float64]  # (k,): 1 - leverage of each row
    residual: NDArray[np.float64]  # (k, e)
    apart: NDArray[np.float64]  # (k, e): what the given coefficients compute beside the minimiser
    outside: NDArray[np.float64]  # (sequences,): squared residuals that no feature reaches
    power: NDArray[np.float64]  # (sequences,): squared targets
    alone: bool  # each row is a sequence

    def of_sequences(self, values: NDArray) -> NDArray[np.float64]:
        """Sums of (k,) over the rows of each sequence."""
        return values if self.alone else np.array([values.sum()])

    def gradients(self, output: int) -> NDArray[np.float64]:
        """g_i of one output, (sequences, rank)."""
        rows = self.basis * (self.residual[:, output] / np.sqrt(self.rest))[:, None]
        return rows if self.alone else rows.sum(axis=0, keepdims=True)

    @property
    def left_out_basis(self) -> NDArray[np.float64]:
        """(1 - H_i)^-1 Q_i, (k, rank)."""
        return self.basis / self.rest[:, None]


def influence_of(rows: Rows, theta: NDArray) -> Influence:
    """What each sequence does to the minimiser of the squared error.

    theta : (p, e), given coefficients in the scaled coordinates of the norm
    Sequences of weight zero do nothing: they have zeros everywhere.

    Cost: about four times the flops of ``Moments``, and e p^3; memory (e + 4) p^2 numbers.
    """
    white = row_basis_of(factor_of(rows))
    norm, *spreads = folded(of_parts(rows, _summed_part, white, theta, are_large=True))
    together = np.sum(spreads, axis=0)
    found = list(of_parts(rows, _parts_in_trace, white, theta, norm, together))
    leverage, left_out, fitted, own, power, noise, parts, apart = (
        np.concatenate(each) for each in zip(*found, strict=True)
    )
    # Outputs may depend on each other: the norm of all together is at most the sum of their norms.
    size = sum(_size(norm, spread) for spread in spreads)
    trace = float(np.sum(norm * together))
    freedom = (trace / size) ** 2 if size > 0.0 else 1.0
    rank = white.turn.shape[1]
    return Influence(leverage, left_out, fitted, own, power, noise, parts, apart, freedom, rank)


def row_basis_of(factor: TriangularFactor) -> RowBasis:
    """From the triangular factor of all rows: by its inverse, or by singular values."""
    root = factor.scaled_factor() / factor.layout.feature_weights
    scale = column_scale(np.sqrt(np.einsum("mp,mp->p", root, root)))
    tolerance = rank_tolerance(root.shape[1], factor.n_rows)
    if triangular_rcond(root, scale) > tolerance:
        return RowBasis(np.linalg.inv(root / scale) / scale[:, None], factor.scaled_projection())
    left, sigma, right = np.linalg.svd(root / scale, full_matrices=False)
    rank = int(np.count_nonzero(sigma > tolerance * max(sigma.max(initial=0.0), 1.0)))
    turn = right[:rank].T / sigma[:rank] / scale[:, None]
    return RowBasis(turn, left[:, :rank].T @ factor.scaled_projection())


def _summed_part(rows: Rows, white: RowBasis, theta: NDArray) -> list[NDArray[np.float64]]:
    """W, and M of each output, summed over a part."""
    rank, n_outputs = white.fit.shape
    sums = [np.zeros((rank, rank)) for _ in range(1 + n_outputs)]
    for some in _turned(rows, white, theta):
        left_out = some.left_out_basis
        sums[0] += left_out.T @ left_out
        for output in range(n_outputs):
            each = some.gradients(output)
            sums[1 + output] += each.T @ each
    return sums


def _parts_in_trace(
    rows: Rows, white: RowBasis, theta: NDArray, norm: NDArray, spread: NDArray
) -> tuple[NDArray[np.float64], ...]:
    """The numbers of each sequence of a part, in the order of ``Influence``."""
    found = [_numbers(some, norm, spread) for some in _turned(rows, white, theta)]
    return tuple(np.concatenate(each) for each in zip(*found, strict=True))


def _numbers(some: _Turned, norm: NDArray, spread: NDArray) -> tuple[NDArray[np.float64], ...]:
    leverage = 1.0 - some.rest
    largest = leverage if some.alone else leverage.max(initial=0.0, keepdims=True)
    power = np.sum(some.residual**2, axis=1)
    noise = np.zeros(len(some.outside))
    for output in range(some.residual.shape[1]):
        each = some.gradients(output)
        noise += np.einsum("np,np->n", each @ norm, each)
    left_out = some.left_out_basis
    parts = np.einsum("np,np->n", left_out @ spread, left_out)
    own = np.sum((some.residual - some.apart) ** 2, axis=1)
    apart = np.sum(some.apart**2, axis=1) / some.rest**2
    return (
        largest,
        some.of_sequences(power / some.rest**2) + some.outside,
        some.of_sequences(power) + some.outside,
        some.of_sequences(own) + some.outside,
        some.power,
        noise,
        some.of_sequences(parts),
        some.of_sequences(apart),
    )


def _turned(rows: Rows, white: RowBasis, theta: NDArray) -> Iterator[_Turned]:
    """The sequences of a part, turned."""
    for some in sequence_rows(rows):
        basis = some.features @ white.turn
        fitted = basis @ white.fit
        residual, apart = some.targets - fitted, some.features @ theta - fitted
        power = np.sum(some.targets**2, axis=1)
        if rows.mode == "last":
            rest = _rest(np.einsum("np,np->n", basis, basis))
            yield _Turned(basis, rest, residual, apart, np.zeros(len(basis)), power, True)
        else:
            yield _turned_sequence(basis, residual, apart, power.sum(keepdims=True))


def _turned_sequence(basis: NDArray, residual: NDArray, apart: NDArray, power: NDArray) -> _Turned:
    """One sequence of several rows, by the singular values of its part of Q."""
    left, sigma, right = np.linalg.svd(basis, full_matrices=False)
    inside = left.T @ residual
    outside = np.array([max(float(np.sum(residual**2) - np.sum(inside**2)), 0.0)])
    turned = sigma[:, None] * right
    return _Turned(turned, _rest(sigma**2), inside, left.T @ apart, outside, power, False)


def _rest(leverage: NDArray) -> NDArray[np.float64]:
    return 1.0 - np.minimum(leverage, FULL_LEVERAGE)


def _size(norm: NDArray, spread: NDArray) -> float:
    """||W^1/2 M W^1/2||, Frobenius."""
    product = norm @ spread
    return float(np.sqrt(max(np.sum(product * product.T), 0.0)))
