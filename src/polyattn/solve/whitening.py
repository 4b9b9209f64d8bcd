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

from polyattn.numerics.scaling import EPS
from polyattn.solve.direct import column_scale, economic_qr
from polyattn.solve.excess import Sizes
from polyattn.solve.second_moments import SecondMoments, second_moments
from polyattn.stats.rows import Rows

# Features whose sizes differ by more than this are brought to similar size first.
COMPARABLE_SIZES = 1e6

# Directions in which data vary by less than this part of the largest drown in rounding.
WEAK_DIRECTION = 1e-11

# A ridge above this part of the largest eigenvalue hides what rounding does to the small ones.
VISIBLE_RIDGE = 1e-12

# Above this part, rounding along directions without data does no harm.
LARGE_RIDGE = 1e-4


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
    has_diagonal_ridge : whether L^T L, what a ridge adds to L^T H L, is diagonal (or is not needed)
    n_weak : directions that have data, but less than rounding hides; they are left out
    sizes : what the rounding of gradients depends on
    """

    sums: Factor
    queries: Factor
    roots: NDArray[np.float64]
    beside: NDArray[np.float64]
    scale: NDArray[np.float64]
    condition: float
    largest: float
    is_graded: bool
    has_diagonal_ridge: bool
    n_weak: int
    sizes: Sizes

    @classmethod
    def of(cls, rows: Rows, ridge: float) -> Whitening:
        """That of the rows, in one pass.  Cost: N (m^2 + r^2) flops, and some 10 (m^3 + r^3)."""
        moments = second_moments(rows)
        sizes = [each.sizes for each in moments]
        is_graded = _spread(sizes[0]) * _spread(sizes[1]) > COMPARABLE_SIZES
        largest = float(sizes[0].max() * sizes[1].max()) ** 2
        # Beside features of very different size, a small ridge is hidden by rounding.
        in_norm = ridge > 0 and (not is_graded or ridge >= VISIBLE_RIDGE * largest)
        units = [np.ones_like(size) if in_norm else column_scale(size) for size in sizes]
        sums, queries, alone = (
            Factor.of(each, unit) for each, unit in zip(moments, units, strict=True)
        )
        products = np.multiply.outer(sums.values, queries.values)
        values = np.append(products, alone.values)
        scale = np.append(np.multiply.outer(units[0], units[1]), units[2])
        if in_norm:
            # Where there are no data the minimiser is zero, and gradients are rounding; or there
            # are few, which second moments do not show.  A large ridge need not know.
            is_kept = values > 0
            if ridge >= LARGE_RIDGE * largest:
                is_kept = np.append(
                    np.multiply.outer(sums.is_present, queries.is_present), alone.is_present
                )
            values = np.where(is_kept, values + ridge, 0.0)
        elif ridge > 0:
            # The ridge has no vectors in common with the rest: each feature gets its own part.
            values = np.maximum(values, EPS * len(values) * (values.max() or 1.0))
            scale = scale * column_scale(np.hypot(1.0, np.sqrt(ridge) / scale))
        is_weak = (values > 0) & (np.sqrt(values) < WEAK_DIRECTION * np.sqrt(values.max()))
        values = np.where(is_weak, 0.0, values)
        positive = values[values > 0]
        roots = np.where(values > 0, 1.0 / np.sqrt(np.where(values > 0, values, 1.0)), 0.0)
        norms = np.append(np.multiply.outer(sizes[0], sizes[1]), sizes[2])
        spread = float(np.sqrt(values.max(initial=0.0) * np.sum(roots**2)))
        return cls(
            sums,
            queries,
            roots[: products.size].reshape(products.shape),
            roots[products.size :],
            scale[:, None],
            float(positive.max() / positive.min()) if len(positive) else 1.0,
            largest,
            bool(is_graded),
            bool(in_norm or ridge == 0),
            int(np.count_nonzero(is_weak)),
            Sizes(norms, spread, rows.max_length),
        )

    @property
    def n_seen(self) -> int:
        """In how many directions there are data, as far as the two factors tell."""
        return int(np.count_nonzero(self.roots) + np.count_nonzero(self.beside))

    @property
    def least_penalty(self) -> float:
        """What a ridge of one adds at least to eigenvalues of L^T H L; 0 where not known."""
        roots = np.append(self.roots, self.beside)
        least = float(np.min(roots[roots > 0], initial=np.inf)) ** 2
        return least if self.has_diagonal_ridge and np.isfinite(least) else 0.0

    @property
    def unevenness(self) -> float:
        """The 90th percentile of the eigenvalues of K over the 10th; single ones do not matter."""
        roots = np.append(self.roots, self.beside)
        roots = roots[roots > 0]
        if not len(roots):
            return 1.0
        low, high = np.quantile(roots, (0.1, 0.9))
        return float((high / low) ** 2)

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

    def left_out(self, gradient: NDArray) -> NDArray[np.float64]:
        """The power of each column along the directions that were left out, (e,)."""
        block, beside = self._split(gradient / self.scale)
        turned = self.sums.vectors.T @ block @ self.queries.vectors
        parts = self._joined(turned * (self.roots == 0), beside * (self.beside[:, None] == 0))
        return np.asarray(np.sum(parts**2, axis=0))

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
    is_present: NDArray[np.bool_]  # (m,), False for entries that are zero in all rows

    @classmethod
    def of(cls, moments: SecondMoments, unit: NDArray) -> Factor:
        """Those of second moments, in such units."""
        is_present = moments.sizes > 0
        values, vectors = np.zeros(len(unit)), np.eye(len(unit))
        if np.any(is_present):
            found = _directions(moments.part(is_present), unit[is_present])
            values[is_present], vectors[np.ix_(is_present, is_present)] = found
        return cls(unit, values, vectors, is_present)

    @property
    def has_dependent(self) -> bool:
        """Whether some entries are not zero, but combinations of each other."""
        return bool(np.any(self.values[self.is_present] == 0))

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


def _directions(
    moments: SecondMoments, unit: NDArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues of moments over units, 0 for those that are rounding, and their vectors."""
    values, vectors = moments.turned(np.diag(1.0 / unit))
    equal = column_scale(moments.sizes)
    if np.all(values > 0) or len(set(equal / unit)) == 1:
        return values, vectors
    # Small is not zero: only entries of equal size tell.  The directions that these call unseen,
    # in units of the norm, and vectors of the others that are orthonormal.
    values, vectors = _directions(moments, equal)
    unseen = vectors[:, values == 0] / equal[:, None]
    n_unseen, basis = unseen.shape[1], np.linalg.qr(unseen, mode="complete")[0]
    others = basis[:, n_unseen:]
    values, turn = moments.turned(others)
    basis[:, n_unseen:] = others @ turn
    values = np.maximum(values, EPS**2 * values.max(initial=0.0))
    return np.append(np.zeros(n_unseen), values), basis


def _spread(sizes: NDArray) -> float:
    """The largest of some sizes over the smallest that is positive."""
    positive = sizes[sizes > 0]
    return float(positive.max() / positive.min()) if len(positive) else 1.0
