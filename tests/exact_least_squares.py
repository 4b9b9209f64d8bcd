"""Least squares over attention layers in exact rational arithmetic (python-flint).

A float64 is a rational number, so the features G[j,k] x[l] of given tokens are rationals, and so
is the minimiser of

    sum_i w_i ||y_i - P psi_i||^2 + ridge ||T||^2,      ||T||^2 = sum (1 or 1/2) P[a, (jk), l]^2

(an off-diagonal coefficient is shared by two entries of T).  With ridge = 0 and features that are
dependent it is the minimiser of least ||T||.  Nothing here is rounded before ``numbers``.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import fmpq, fmpq_mat
from numpy.typing import NDArray

from polyattn.reference.features import pairs


@dataclass(frozen=True)
class ExactProblem:
    """Rows psi (rows, p), targets (rows, e) and weights (rows, 1) as rationals, and the ridge."""

    psi: fmpq_mat
    targets: fmpq_mat
    weights: list[fmpq]
    ridge: fmpq
    width: int

    @classmethod
    def of(
        cls,
        X: list[NDArray],
        rows: NDArray,
        mode: str,
        ridge: float = 0.0,
        bias: bool = False,
        weights: NDArray | None = None,
    ) -> "ExactProblem":
        """From sequences (n_i, d), targets (rows, e) and one weight per sequence."""
        width = X[0].shape[1] + bias
        given = np.ones(len(X)) if weights is None else weights
        row_weights = [rational(w) for w, x in zip(given, X, strict=True) for _ in queries(x, mode)]
        return cls(design(X, mode, bias), matrix(rows), row_weights, rational(ridge), width)

    @cached_property
    def gram(self) -> fmpq_mat:
        """sum w psi psi^T, (p, p)."""
        return self._weighted.transpose() * self.psi

    @cached_property
    def _weighted(self) -> fmpq_mat:
        table = self.psi.tolist()
        scaled = [[w * v for v in row] for w, row in zip(self.weights, table, strict=True)]
        return fmpq_mat(scaled)

    @cached_property
    def rank(self) -> int:
        """The rank of the rows of positive weight."""
        return int(self.gram.rref()[1])

    @cached_property
    def coef(self) -> fmpq_mat:
        """The minimiser, (p, e), in the order (pair, query coordinate)."""
        gram, cross = self.gram, self._weighted.transpose() * self.targets
        sizes = squared_norm_weights(self.width)
        if self.ridge > 0:
            penalised = gram + self.ridge * diagonal(sizes)
            return penalised.solve(cross)
        if self.rank == gram.ncols():
            return gram.solve(cross)
        # P = S^-2 B c, B a basis of the row space: of least norm, and M P = b on pivot rows.
        pivots = _pivots(gram)
        if not pivots:
            return fmpq_mat(gram.ncols(), self.targets.ncols())
        basis = _columns(gram, pivots)
        spanning = diagonal([1 / size for size in sizes]) * basis
        square = _rows(gram, pivots) * spanning
        return spanning * square.solve(_rows(cross, pivots))

    @cached_property
    def predicted(self) -> fmpq_mat:
        """Outputs of the minimiser on the rows, (rows, e)."""
        return self.psi * self.coef

    @cached_property
    def residual_power(self) -> fmpq:
        """sum w ||y - P psi||^2 of the minimiser."""
        left = (self.targets - self.predicted).tolist()
        return sum(
            (
                w * sum((v * v for v in row), fmpq(0))
                for w, row in zip(self.weights, left, strict=True)
            ),
            fmpq(0),
        )

    @property
    def risk(self) -> fmpq:
        """The weighted mean of the squared residuals."""
        return self.residual_power / sum(self.weights, fmpq(0))

    def coefficients(self) -> NDArray[np.float64]:
        """``coef`` as (e, q, d), each entry rounded once."""
        return numbers(self.coef).T.reshape(self.targets.ncols(), -1, self.width)


def design(X: list[NDArray], mode: str, bias: bool = False) -> fmpq_mat:
    """The features of all predicted positions, (rows, p)."""
    return fmpq_mat([row for x in X for row in _feature_rows(x, mode, bias)])


def queries(x: NDArray, mode: str) -> range:
    """The predicted positions of one sequence."""
    return range(len(x) - 1, len(x)) if mode == "last" else range(len(x))


def squared_norm_weights(width: int) -> list[fmpq]:
    """What a squared coefficient counts in ||T||^2, (p,): 1, or 1/2 off the diagonal."""
    return [fmpq(1) if j == k else fmpq(1, 2) for j, k in pairs(width) for _ in range(width)]


def rational(value: float) -> fmpq:
    """A float64 as the rational number it is."""
    return fmpq(*float(value).as_integer_ratio())


def matrix(array: NDArray) -> fmpq_mat:
    """A table of float64 as rationals."""
    return fmpq_mat([[rational(value) for value in row] for row in array])


def numbers(exact: fmpq_mat) -> NDArray[np.float64]:
    """Rationals as the nearest float64."""
    rounded = [[nearest(value) for value in row] for row in exact.tolist()]
    return np.array(rounded, dtype=np.float64).reshape(exact.nrows(), exact.ncols())


def nearest(value: fmpq) -> float:
    """The nearest float64 (integer division of Python rounds correctly)."""
    return int(value.p) / int(value.q)


def diagonal(entries: list[fmpq]) -> fmpq_mat:
    """A square matrix with these entries on its diagonal."""
    size = len(entries)
    result = fmpq_mat(size, size)
    for i, entry in enumerate(entries):
        result[i, i] = entry
    return result


def _feature_rows(x: NDArray, mode: str, bias: bool) -> list[list[fmpq]]:
    tokens = [[rational(value) for value in token] + [fmpq(1)] * bias for token in x]
    index = pairs(len(tokens[0]))
    running = [fmpq(0)] * len(index)
    grams = []
    for token in tokens:
        running = [g + token[j] * token[k] for g, (j, k) in zip(running, index, strict=True)]
        grams.append(running)
    seen = grams if mode == "causal" else [grams[-1]] * len(grams)
    return [[g * value for g in seen[t] for value in tokens[t]] for t in queries(x, mode)]


def _pivots(gram: fmpq_mat) -> list[int]:
    """Columns that are independent and span all others."""
    reduced, rank = gram.rref()
    return [next(c for c in range(gram.ncols()) if reduced[r, c] != 0) for r in range(rank)]


def _columns(table: fmpq_mat, chosen: list[int]) -> fmpq_mat:
    return fmpq_mat([[row[c] for c in chosen] for row in table.tolist()])


def _rows(table: fmpq_mat, chosen: list[int]) -> fmpq_mat:
    entries = table.tolist()
    return fmpq_mat([entries[r] for r in chosen])
