"""Randomly pivoted partial Cholesky: coordinates in which the largest directions are of size one.

Some rows are drawn, each in proportion to what those before leave of its ||phi||^2, so that they
explain most of the kernel of all rows [Chen, Epperly, Tropp, Webber 2025].  With an orthonormal
basis Q (p, k) of their features,

    P  =  Q (Q^T H Q) Q^T  +  rest (1 - Q Q^T),        theta = P^-1/2 z,

stands for H = sum phi phi^T + ridge: the preconditioner of [Diaz, Epperly, Frangella, Tropp, Webber
2023], for coefficients instead of rows.  Q lies in the row space, and so do all iterates from zero:
they lead to the optimum of smallest norm, as without P, in fewer passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.features.products import feature_norms, features, kernel
from polyattn.numerics.parallel import map_pieces
from polyattn.stats.parts import is_read
from polyattn.stats.row_groups import RowBlock
from polyattn.stats.rows import Rows

Array = NDArray[np.float64]

# So many rows are drawn at most, so many at a time.
MOST_ROWS, ROWS_AT_A_TIME = 300, 50

# Rows of which less than this part is new are left out: rounding would lead out of the row space.
NEW_PART = 1e-6

SEED = 0


@dataclass(frozen=True)
class PivotedRows:
    """P^-1/2, a map of columns (p, e) that is its own transpose.

    basis : (p, k), Q, in the coordinates of the norm
    values, vectors : (k,) and (k, k), of Q^T H Q
    rest : what stands for H in the other directions
    """

    basis: Array
    values: Array
    vectors: Array
    rest: float

    @classmethod
    def of(cls, rows: Rows, ridge: float) -> PivotedRows | None:
        """That of rows in memory; None without any feature, or where summaries are not kept.

        Cost: N k m flops on all workers, memory of (p + N / 2) k numbers.
        """
        # Rows of a source may be on workers, and are to give the same bits wherever they are.
        if is_read(rows.batch) or not rows.keeps_summaries:
            return None
        layout, rng = rows.layout, np.random.default_rng(SEED)
        blocks = list(rows.blocks())
        norms = [feature_norms(layout, each.sums, each.queries) for each in blocks]
        left = np.concatenate(norms) ** 2
        least, most_rows, rank = NEW_PART * float(left.max()), min(MOST_ROWS, len(left)), 0
        basis = np.empty((layout.n_features, most_rows), order="F")
        seen = np.empty((len(left), most_rows), np.float32)
        while rank < most_rows and np.any(is_left := left > least):
            n_drawn = min(ROWS_AT_A_TIME, most_rows - rank)
            weights = np.where(is_left, left, 0.0)
            drawn = np.unique(rng.choice(len(left), n_drawn, p=weights / weights.sum()))
            pivots = _taken(rows, blocks, drawn)
            phi = features(layout, *pivots) / layout.feature_weights[:, None]
            known, turn, fresh = _new_directions(basis[:, :rank], phi, least)
            some = slice(rank, rank := rank + fresh.shape[1])
            basis[:, some] = fresh
            seen[:, some] = _products(rows, blocks, pivots, seen[:, : some.start], known) @ turn
            left = np.maximum(left - np.einsum("nk,nk->n", seen[:, some], seen[:, some]), 0.0)
            left[drawn] = 0.0
        if rank == 0:
            return None
        values, vectors = np.linalg.eigh(_gram(seen[:, :rank]))
        # Single precision does not see what is smaller than this.
        rest = max(float(left.mean()), least)
        return cls(basis[:, :rank], np.maximum(values, rest) + ridge, vectors, rest + ridge)

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue of P."""
        return min(self.rest, float(self.values.min()))

    @property
    def condition(self) -> float:
        """The largest eigenvalue of P over the smallest."""
        return max(self.rest, float(self.values.max())) / self.smallest

    def theta(self, columns: NDArray) -> Array:
        """P^-1/2 of some columns: to theta, and of gradients to those of z."""
        return self._power(columns, -0.5)

    def inverse(self, columns: NDArray) -> Array:
        """P^1/2 of some columns."""
        return self._power(columns, 0.5)

    def _power(self, columns: NDArray, exponent: float) -> Array:
        scale = self.rest**exponent
        inside = self.vectors.T @ (self.basis.T @ columns)
        inside *= (self.values**exponent - scale)[:, None]
        return np.asarray(scale * columns + self.basis @ (self.vectors @ inside))


def _taken(rows: Rows, blocks: list[RowBlock], drawn: NDArray[np.intp]) -> tuple[Array, Array]:
    """Sums (m, k) and queries (r, k) of some rows."""
    sums, queries = [], []
    for block in blocks:
        inside = drawn[(drawn >= block.first - rows.base) & (drawn < block.stop - rows.base)]
        at = inside - (block.first - rows.base)
        sums.append(block.sums[:, at])
        queries.append(block.queries[:, at])
    return np.concatenate(sums, axis=1), np.concatenate(queries, axis=1)


def _new_directions(basis: Array, phi: Array, least: float) -> tuple[Array, Array, Array]:
    """What features phi (p, k) add to a basis (p, j): (phi - basis known) turn, orthonormal.

    known : (j, k);  turn : (k, new).  Of length^2 ``least`` at least, before they are turned.
    """
    known, fresh, turn = np.zeros((basis.shape[1], phi.shape[1])), phi, np.eye(phi.shape[1])
    # Twice is enough for rounding [Giraud, Langou, Rozloznik 2005].
    for _ in range(2):
        more = basis.T @ fresh
        known, fresh = known + more, fresh - basis @ more
    for smallest in (least, 0.5):
        values, vectors = np.linalg.eigh(fresh.T @ fresh)
        vectors = vectors[:, values > smallest] / np.sqrt(values[values > smallest])
        turn, fresh = turn @ vectors, fresh @ vectors
    return known, turn, fresh


def _products(
    rows: Rows,
    blocks: list[RowBlock],
    pivots: tuple[Array, Array],
    seen: NDArray[np.float32],
    known: Array,
) -> Array:
    """Those of all features with what is new in the pivots, (N, k)."""
    found = np.empty((len(seen), known.shape[1]))

    def fill(block: RowBlock) -> None:
        some = slice(block.first - rows.base, block.stop - rows.base)
        found[some] = kernel(rows.layout, block.sums, block.queries, *pivots)
        found[some] -= seen[some] @ known

    map_pieces(fill, blocks)
    return found


def _gram(seen: NDArray[np.float32]) -> Array:
    """seen^T seen in double precision."""
    total, step = np.zeros((seen.shape[1],) * 2), 4096
    for start in range(0, len(seen), step):
        some = seen[start : start + step].astype(np.float64)
        total += some.T @ some
    return total
