"""Second moments of sums and queries, and which of their eigenvalues are rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.blas import add_square
from polyattn.numerics.scaling import EPS
from polyattn.solve.direct import column_scale
from polyattn.stats.passes import of_parts, summed
from polyattn.stats.row_groups import RowBlock
from polyattn.stats.rows import Rows

# Second moments whose eigenvalues differ by more than this are not judged by squares.
NEARLY_DEPENDENT = 1e-10


@dataclass(frozen=True)
class SecondMoments:
    """E[S S^T] or E[u u^T], and what of its eigenvalues is rounding.

    root : (k, m), the square root that a QR factorisation gives; None where all is seen without
    rounding : the part of the largest size (the root of an eigenvalue) that is rounding
    """

    square: NDArray[np.float64]  # (m, m)
    root: NDArray[np.float64] | None
    rounding: float

    @property
    def sizes(self) -> NDArray[np.float64]:
        """The root mean square of each entry, (m,)."""
        return np.sqrt(self.square.diagonal())

    def part(self, chosen: NDArray[np.bool_]) -> SecondMoments:
        """Those of some of the entries."""
        root = None if self.root is None else self.root[:, chosen]
        return SecondMoments(self.square[np.ix_(chosen, chosen)], root, self.rounding)

    def turned(self, turn: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Eigenvalues (k,) of turn^T square turn, rounding put to 0, and their vectors."""
        if self.root is None:
            values, vectors = np.linalg.eigh(turn.T @ self.square @ turn)
            return np.where(values > self.rounding * values[-1], values, 0.0), vectors
        _, sizes, vectors = np.linalg.svd(self.root @ turn)
        seen = np.where(sizes > self.rounding * sizes[0], sizes, 0.0)
        values = np.zeros(turn.shape[1])
        values[: len(seen)] = seen**2
        return values, vectors.T


def second_moments(rows: Rows) -> tuple[SecondMoments, SecondMoments, SecondMoments]:
    """Those of the sums (m), the queries (r), and the features beside their products (k).

    S is divided by the weights of the norm; of an intercept k = 1, else 0.  Of S it is the mean,
    of u and the others the sum.  Squares lose what is below 1e-8 of the largest: where that may
    matter, the rows are factored too.
    """
    squares = _summed_squares(rows)
    rounding = [10.0 * EPS * max(float(len(each)), rows.n_rows**0.5) for each in squares]
    roots: list[NDArray[np.float64] | None] = [None] * len(squares)
    if any(map(_is_nearly_dependent, squares)):
        roots = [*_triangles(rows), None]
    sums, queries, beside = map(SecondMoments, squares, roots, rounding)
    return sums, queries, beside


def _summed_squares(rows: Rows) -> list[NDArray[np.float64]]:
    """E[S S^T] (m, m), sum u u^T (r, r) and that of those beside (k, k), of weighted rows."""
    total = [np.tril(lower) + np.tril(lower, -1).T for lower in summed(rows, _squares)]
    total[0] /= rows.total_weight
    return total


def _squares(rows: Rows, blocks: list[RowBlock]) -> list[NDArray[np.float64]]:
    """Lower halves of the three sums over some blocks."""
    sizes = (*rows.layout.block, int(rows.layout.form.intercept))
    squares = [np.zeros((size, size)) for size in sizes]
    for block in blocks:
        sums, queries = _weighted(rows, block)
        add_square(squares[0], sums)
        add_square(squares[1], queries)
        if sizes[2]:
            squares[2] += np.sum((block.sums[-1] * block.queries[-1]) ** 2)
    return squares


def _triangles(rows: Rows) -> list[NDArray[np.float64]]:
    """Triangles R (k, m) and (k, r) with R^T R = E[S S^T] and sum u u^T, not by squares."""
    first, *others = of_parts(rows, _triangles_of_part)
    triangles = [np.array(each) for each in first]
    for some in others:
        triangles = [_stacked(*both) for both in zip(triangles, some, strict=True)]
    triangles[0] /= np.sqrt(rows.total_weight)
    return triangles


def _triangles_of_part(rows: Rows) -> list[NDArray[np.float64]]:
    triangles = [np.zeros((0, size)) for size in rows.layout.block]
    for block in rows.blocks():
        for i, some in enumerate(_weighted(rows, block)):
            triangles[i] = _stacked(triangles[i], some.T)
    return triangles


def _stacked(triangle: NDArray, more: NDArray) -> NDArray[np.float64]:
    """The triangle of the rows of both."""
    return np.asarray(np.linalg.qr(np.concatenate([triangle, more]), mode="r"))


def _weighted(rows: Rows, block: RowBlock) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums (m, rows) over the weights of the norm, and queries (r, rows); roots of weights in both.

    ``block`` has those of the queries already.
    """
    (n_sums, n_queries), weights = rows.layout.block, rows.row_weights
    sums = block.sums[:n_sums] / rows.layout.norm_weights[:n_sums, None]
    if weights is not None:
        sums *= np.sqrt(weights[block.first - rows.base : block.stop - rows.base])
    return sums, np.ascontiguousarray(block.queries[:n_queries])


def _is_nearly_dependent(square: NDArray) -> bool:
    """Whether squares may hide how much there is in some direction."""
    sizes = np.sqrt(square.diagonal())
    present = sizes > 0
    if not np.any(present):
        return False
    unit = column_scale(sizes[present])
    values = np.linalg.eigvalsh(square[np.ix_(present, present)] / unit / unit[:, None])
    return bool(values[0] < NEARLY_DEPENDENT * values[-1])
