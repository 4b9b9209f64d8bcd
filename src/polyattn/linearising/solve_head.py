"""The minimiser of one head from its sums, and the ridge by sequences that are left out.

The penalty is relative: ridge * sum_i G_ii m_i^2 with G the normal matrix, so that neither the
size of features nor that of values, nor the number of sequences, changes what it means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh

from polyattn.linearising.head_sums import HeadSums

Array = NDArray[np.float64]

# Ridges that sequences left out choose from, and where the search begins.
RIDGES, FIRST = (1e-7, 1e-5, 1e-3, 1e-1, 10.0), 1


# A ridge with which every normal matrix of unit diagonal can be factored.
NEARLY_SINGULAR = 1e-8


class HeadSolution(NamedTuple):
    """M (F, G') of one head, its ridge, and its squared error on the sums it was solved from."""

    mixing: Array
    ridge: float
    error: float


class HeadFactor(NamedTuple):
    """The inverse of a normal matrix up to single precision: a preconditioner."""

    lower: NDArray[np.float32]
    inverse_sizes: Array

    def apply(self, right: Array) -> Array:
        """The inverse applied to a right side (F, G')."""
        scaled = (self.inverse_sizes * right.ravel()).astype(np.float32)
        found = cho_solve((self.lower, True), scaled)
        return np.asarray((self.inverse_sizes * found).reshape(right.shape))


class MixingEquations:
    """G m = c with a unit diagonal, factored for one ridge after the other.

    Guarantee: ``solve`` returns the minimiser of m^T G m - 2 c^T m + ridge sum_i G_ii m_i^2, the
    global one; of several, which need ridge 0 and a singular G, that of least norm in the units
    of the diagonal.  Features that never occur have coefficient zero.
    Cost: p^3 / 3 flops for each ridge, 2 p^2 numbers.
    """

    def __init__(self, sums: HeadSums) -> None:
        self.matrix, self.cross = sums.matrix(), sums.cross
        self.sizes = np.sqrt(np.maximum(self.matrix.diagonal(), 0.0))
        inverse = np.divide(1.0, self.sizes, out=np.zeros_like(self.sizes), where=self.sizes > 0)
        self.inverse = inverse
        self.scaled = self.matrix * inverse * inverse[:, None]

    def solve(self, ridge: float) -> tuple[Array, HeadFactor]:
        """M (F, G'), and about (G + ridge diag G)^-1."""
        wanted = self.inverse * self.cross.ravel()
        try:
            factor = cho_factor(self._penalised(ridge), lower=True, overwrite_a=True)
            found = cho_solve(factor, wanted)
        except LinAlgError:
            found = _least_norm(self.scaled, wanted, ridge)
            factor = cho_factor(self._penalised(max(ridge, NEARLY_SINGULAR)), lower=True)
        mixing = (self.inverse * found).reshape(self.cross.shape)
        return np.asarray(mixing), HeadFactor(factor[0].astype(np.float32), self.inverse)

    def solve_roughly(self, ridge: float) -> Array | None:
        """M in single precision, for half the time; None where that is too little."""
        wanted = (self.inverse * self.cross.ravel()).astype(np.float32)
        penalised = self._penalised(ridge).astype(np.float32)
        try:
            found = cho_solve(cho_factor(penalised, lower=True, overwrite_a=True), wanted)
        except LinAlgError:
            return None
        return np.asarray((self.inverse * found).reshape(self.cross.shape))

    def _penalised(self, ridge: float) -> Array:
        penalised = self.scaled.copy()
        penalised.flat[:: len(penalised) + 1] += ridge + (self.sizes == 0)
        return penalised


def solve_head(sums: HeadSums, ridge: float) -> HeadSolution:
    """The global minimiser of the squared error of a head, with this relative ridge."""
    equations = MixingEquations(sums)
    mixing, _ = equations.solve(ridge)
    return HeadSolution(mixing, ridge, squared_error(sums, equations.matrix, mixing))


def chosen_ridge(train: HeadSums, left_out: HeadSums, ridges: Sequence[float] = RIDGES) -> float:
    """The ridge with the least squared error on sums of sequences that were left out.

    From the second smallest on it goes to larger ones as long as the error falls, or else to
    smaller ones.  The error is computed from sums, without another pass over the data, and the
    solutions in single precision, which is enough to choose by.
    """
    equations, judge = MixingEquations(train), left_out.matrix()

    def error(i: int) -> float:
        mixing = equations.solve_roughly(ridges[i])
        return np.inf if mixing is None else squared_error(left_out, judge, mixing)

    best, least = FIRST, error(FIRST)
    for step in (1, -1):
        begin = best
        while 0 <= best + step < len(ridges) and (found := error(best + step)) < least:
            best, least = best + step, found
        if best != begin:
            break
    return float(ridges[best])


def squared_error(sums: HeadSums, matrix: Array, mixing: Array) -> float:
    """sum ||o - o^||^2 over the positions of the sums, whose normal ``matrix`` is given."""
    m = mixing.ravel()
    return max(sums.power - 2.0 * float(np.sum(sums.cross * mixing)) + float(m @ matrix @ m), 0.0)


def _least_norm(matrix: Array, right: Array, ridge: float) -> Array:
    """The solution of least norm of a singular system of unit diagonal."""
    values, vectors = eigh(matrix, check_finite=False)
    kept = values > len(values) * np.finfo(np.float64).eps * max(values[-1], 1.0)
    vectors = vectors[:, kept]
    return np.asarray(vectors @ ((vectors.T @ right) / (values[kept] + ridge)))
