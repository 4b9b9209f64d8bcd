"""The triangular factor of features whose rows and columns are brought to similar size.

Multiplying a row (or a column) by a power of two changes no rank and rounds nothing.  A single
row of large tokens would otherwise hide all the others: features are cubic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.verified.gram import BLOCK_NUMBERS, Gram, require_room
from polyattn.numerics.arrays import even_ranges
from polyattn.stats import TriangularFactor
from polyattn.stats.rows import Rows

Piece = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Triangle:
    """R (k, m) of the features Phi D, k = min(rows, m), D = diag(scale) powers of two.

    ``feature_size``: sqrt of the sum over rows and columns of D^2 G_jj G_kk x_l^2, which the
    rounding errors of all features are relative to.
    """

    factor: NDArray[np.float64]
    scale: NDArray[np.float64]
    feature_size: float

    @cached_property
    def singular(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Singular values (m,) descending, and right singular vectors (m, m) in rows."""
        size = self.factor.shape[1]
        _, values, vectors = np.linalg.svd(self.factor)
        return np.concatenate([values, np.zeros(size - len(values))]), vectors


def normalised_pieces(rows: Rows, space: FeatureSpace) -> Iterator[Piece]:
    """Pairs (q, r) and queries (d, r) of all rows, each row times a power of two.

    So many rows at a time that their features fit a cache.
    """
    step = max(64, BLOCK_NUMBERS // space.dimension)
    for block in rows.blocks():
        for first, stop in even_ranges(block.stop - block.first, step):
            pairs, queries = block.pairs[:, first:stop], block.queries[:, first:stop]
            yield _of_size_one(pairs), _of_size_one(queries)


def triangle_of_rows(rows: Rows, space: FeatureSpace) -> Triangle:
    """One pass: blocks of normalised rows are stacked on the factor so far, and factored."""
    require_room(space)
    size = space.dimension
    factor, magnitudes, waiting, height = np.zeros((0, size)), np.zeros(size), [], 0
    for pairs, queries in normalised_pieces(rows, space):
        magnitudes += np.sum(space.magnitudes(pairs, queries) ** 2, axis=1)
        waiting.append(space.features(pairs, queries).T)
        height += pairs.shape[1]
        if height >= 2 * size:
            factor, waiting, height = _factored([factor, *waiting]), [], 0
    factor = _factored([factor, *waiting])
    # Squares below 2^-1074 vanish, so no scale exceeds 2^540, and underflow in features, times
    # such a scale, stays far below rounding.
    lengths = np.linalg.norm(factor, axis=0)
    scale = np.ldexp(1.0, -np.frexp(np.where(lengths > 0, lengths, 1.0))[1])
    return Triangle(factor * scale, scale, float(np.sqrt(np.sum(scale**2 * magnitudes))))


def triangle_of_statistics(
    statistics: TriangularFactor, space: FeatureSpace, gram: Gram
) -> Triangle:
    """From a factor that was accumulated before, rows as they are; ``gram`` knows the scale."""
    factor = statistics.scaled_factor()
    chosen = factor if space.is_whole else _factored([factor[:, space.columns]])
    return Triangle(chosen * gram.scale, gram.scale, gram.feature_size)


def _factored(parts: list[NDArray]) -> NDArray[np.float64]:
    stacked = np.asfortranarray(np.concatenate(parts))
    work, _ = lapack.dgeqrf_lwork(*stacked.shape)
    result, _, _, _ = lapack.dgeqrf(stacked, lwork=int(work.real), overwrite_a=1)
    return np.triu(result[: min(stacked.shape)])


def _of_size_one(columns: NDArray) -> NDArray[np.float64]:
    """Each column times the power of two that brings its largest entry near one."""
    largest = np.abs(columns).max(axis=0)
    _, exponents = np.frexp(np.where(largest > 0, largest, 1.0))
    return np.ldexp(columns, -exponents)
