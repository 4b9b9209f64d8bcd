"""Whitening: coordinates in which features S ⊗ u are nearly independent and of size one.

    K = W (E[S S^T] ⊗ E[u u^T]) + ridge,     W the sum of the weights,

stands for H = sum phi phi^T + ridge, and two small eigendecompositions give its root: theta = L z
with L^T K L = 1.  The spectrum of L^T H L is then near one, whatever the correlations and units of
the tokens, and conjugate gradients take few passes.  With an intercept, the constant feature is a
block of its own beside the products.

Without a ridge the entries of S and u are first brought to size one by powers of two: units of the
coordinates then change no digit.  With a ridge the norm fixes the units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from polyattn.numerics.blas import add_square
from polyattn.numerics.parallel import deal, map_pieces
from polyattn.numerics.scaling import EPS
from polyattn.solve.direct import column_scale, economic_qr
from polyattn.stats.rows import RowBlock, Rows

# Features whose sizes differ by more than this are brought to similar size first.
COMPARABLE_SIZES = 1e6

# A ridge above this part of the largest eigenvalue hides what rounding does to the small ones.
VISIBLE_RIDGE = 1e-12


@dataclass(frozen=True)
class Whitening:
    """The map L of (p, e) whitened coefficients to theta (p, e), and its transpose for gradients.

    sums, queries : the two factors of K
    roots : (m, r), those of 1 / K along their vectors; 0 in the directions that have no data
    beside : (k,), the same for k features that stand beside the block (0, or the intercept)
    scale : (p, 1), what theta is divided by at last
    condition : the largest eigenvalue of K over the smallest
    largest : the largest entry of K without the ridge, in the coordinates of the norm
    is_graded : whether features differ in size by more than ``COMPARABLE_SIZES``
    """

    sums: Factor
    queries: Factor
    roots: NDArray[np.float64]
    beside: NDArray[np.float64]
    scale: NDArray[np.float64]
    condition: float
    largest: float
    is_graded: bool

    @classmethod
    def of(cls, rows: Rows, ridge: float) -> Whitening:
        """That of the rows, in one pass.  Cost: N (m^2 + r^2) flops, and some 10 (m^3 + r^3)."""
        squares = second_moments(rows)
        sizes = [np.sqrt(square.diagonal()) for square in squares]
        is_graded = _spread(sizes[0]) * _spread(sizes[1]) > COMPARABLE_SIZES
        largest = float(sizes[0].max() * sizes[1].max()) ** 2
        # Beside features of very different size, a small ridge is hidden by rounding.
        in_norm = ridge > 0 and (not is_graded or ridge >= VISIBLE_RIDGE * largest)
        units = [np.ones_like(size) if in_norm else column_scale(size) for size in sizes]
        sums, queries, alone = (
            Factor.of(square, unit, rows.n_rows)
            for square, unit in zip(squares, units, strict=True)
        )
        products = np.multiply.outer(sums.values, queries.values)
        values = np.append(products, alone.values)
        scale = np.append(np.multiply.outer(units[0], units[1]), units[2])
        if in_norm:
            # Where there are no data the minimiser is zero, and gradients are rounding.
            values = np.where(values > 0, values + ridge, 0.0)
        elif ridge > 0:
            # The ridge has no vectors in common with the rest: each feature gets its own part.
            values = np.maximum(values, EPS * len(values) * (values.max() or 1.0))
            scale = scale * column_scale(np.hypot(1.0, np.sqrt(ridge) / scale))
        positive = values[values > 0]
        roots = np.where(values > 0, 1.0 / np.sqrt(np.where(values > 0, values, 1.0)), 0.0)
        return cls(
            sums,
            queries,
            roots[: products.size].reshape(products.shape),
            roots[products.size :],
            scale[:, None],
            float(positive.max() / positive.min()) if len(positive) else 1.0,
            largest,
            bool(is_graded),
        )

    @property
    def n_seen(self) -> int:
        """In how many directions there are data, as far as the two factors tell."""
        return int(np.count_nonzero(self.roots) + np.count_nonzero(self.beside))

    @property
    def is_full(self) -> bool:
        """Whether only entries that are zero in all rows have no data."""
        return not (self.sums.has_dependent or self.queries.has_dependent)

    def theta(self, whitened: NDArray) -> NDArray[np.float64]:
        """L z of some columns."""
        block, beside = self._split(whitened)
        turned = self.sums.vectors @ (self.roots * block) @ self.queries.vectors.T
        return self._joined(turned, self.beside[:, None] * beside) / self.scale

    def gradient(self, gradient: NDArray) -> NDArray[np.float64]:
        """L^T g of some columns."""
        block, beside = self._split(gradient / self.scale)
        turned = self.roots * (self.sums.vectors.T @ block @ self.queries.vectors)
        return self._joined(turned, self.beside[:, None] * beside)

    def power(self, gradient: NDArray) -> NDArray[np.float64]:
        """g^T K^-1 g of each column, (e,)."""
        return np.asarray(np.sum(self.gradient(gradient) ** 2, axis=0))

    def random_step(self, seed: int) -> NDArray[np.float64]:
        """A standard normal z (p, 1), zero along the directions that have no data."""
        draws = np.random.default_rng(seed).standard_normal((len(self.scale), 1))
        return draws * (np.append(self.roots, self.beside)[:, None] > 0)

    def in_row_space(self, theta: NDArray) -> NDArray[np.float64]:
        """theta without its part along combinations of sums or queries that are always zero."""
        block, beside = self._split(theta)
        block = self.queries.least(self.sums.least(block).swapaxes(1, 2)).swapaxes(1, 2)
        return self._joined(block, beside)

    def _split(self, columns: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(e, m, r) and (k, e) of (p, e)."""
        size = self.roots.size
        return columns[:size].T.reshape(-1, *self.roots.shape), columns[size:]

    def _joined(self, block: NDArray, beside: NDArray) -> NDArray[np.float64]:
        return np.concatenate([block.reshape(-1, self.roots.size).T, beside])


@dataclass(frozen=True)
class Factor:
    """E[S S^T] or E[u u^T]: unit V diag(values) V^T unit, with 0 for values that are rounding."""

    unit: NDArray[np.float64]  # (m,), powers of two
    values: NDArray[np.float64]  # (m,)
    vectors: NDArray[np.float64]  # (m, m)
    has_dependent: bool  # entries that are not zero, but combinations of each other

    @classmethod
    def of(cls, square: NDArray, unit: NDArray, n_rows: int) -> Factor:
        """From second moments (m, m) of so many rows."""
        if not len(square):
            return cls(unit, np.empty(0), square, has_dependent=False)
        values, vectors = np.linalg.eigh(square / unit / unit[:, None])
        rounding = 10.0 * EPS * max(float(len(values)), n_rows**0.5)
        is_zero, is_rounding = square.diagonal() == 0, values <= rounding * values[-1]
        own_unit = column_scale(np.sqrt(square.diagonal()))
        if np.any(is_rounding) and np.any(unit != own_unit):
            # Small is not zero: only entries of equal size tell.
            return cls.of(square, own_unit, n_rows)._in_units_of_norm(square)
        # As in ``direct``: no rounding in the place of what is zero.
        vectors[np.ix_(is_zero, ~is_rounding)] = 0.0
        n_unseen, n_zero = np.count_nonzero(is_rounding), np.count_nonzero(is_zero)
        return cls(unit, np.where(is_rounding, 0.0, values), vectors, bool(n_unseen > n_zero))

    def least(self, arrays: NDArray) -> NDArray[np.float64]:
        """Arrays (e, m, k) in true units with the same effect on all rows, of least norm.

        The row space is spanned by unit V = Q R, as in ``direct.minimum_norm``.
        """
        if np.all(self.values > 0):
            return arrays
        kept, unit = self.vectors[:, self.values > 0], self.unit[:, None]
        basis, triangle = economic_qr(unit * kept)
        columns = arrays.swapaxes(0, 1).reshape(len(kept), -1)
        wanted, least = kept.T @ (unit * columns), np.zeros_like(columns)
        for _ in range(2):
            missing = wanted - kept.T @ (unit * least)
            least += basis @ solve_triangular(triangle, missing, trans="T", check_finite=False)
        return least.reshape(len(kept), len(arrays), -1).swapaxes(0, 1)

    def _in_units_of_norm(self, square: NDArray) -> Factor:
        """The same directions unseen, and vectors of the others that are orthonormal."""
        unseen = self.vectors[:, self.values == 0] / self.unit[:, None]
        basis = np.linalg.qr(unseen, mode="complete")[0]
        n_unseen = unseen.shape[1]
        others = basis[:, n_unseen:]
        values, turned = np.linalg.eigh(others.T @ square @ others)
        basis[:, n_unseen:] = others @ turned
        basis[square.diagonal() == 0, n_unseen:] = 0.0
        values = np.maximum(values, np.finfo(np.float64).tiny)
        values = np.append(np.zeros(n_unseen), values)
        return Factor(np.ones(len(square)), values, basis, self.has_dependent)


def second_moments(rows: Rows) -> tuple[NDArray[np.float64], ...]:
    """E[S S^T] (m, m) and sum u u^T (r, r) of weighted rows, and the same of those beside (k, k).

    S is divided by the weights of the norm; of an intercept k = 1, else 0.
    """
    layout, weights = rows.layout, rows.row_weights
    (n_sums, n_queries), n_beside = layout.block, int(layout.form.intercept)
    s = layout.norm_weights[:n_sums, None]

    def part(blocks: list[RowBlock]) -> list[NDArray[np.float64]]:
        squares = [np.zeros((size, size)) for size in (n_sums, n_queries, n_beside)]
        for block in blocks:
            scaled = block.sums[:n_sums] / s
            if weights is not None:
                scaled *= np.sqrt(weights[block.first : block.stop])
            add_square(squares[0], scaled)
            add_square(squares[1], np.ascontiguousarray(block.queries[:n_queries]))
            if n_beside:
                squares[2] += np.sum((block.sums[-1] * block.queries[-1]) ** 2)
        return squares

    total = part([])
    for blocks in rows.groups():
        for squares in map_pieces(part, deal(blocks)):
            for sum_, some in zip(total, squares, strict=True):
                sum_ += some
    sums, queries, beside = (np.tril(lower) + np.tril(lower, -1).T for lower in total)
    return sums / rows.total_weight, queries, beside


def _spread(sizes: NDArray) -> float:
    """The largest of some sizes over the smallest that is positive."""
    positive = sizes[sizes > 0]
    return float(positive.max() / positive.min()) if len(positive) else 1.0
