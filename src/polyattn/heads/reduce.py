"""Drop the directions of outputs, tokens and queries that a function does not use.

If S[a,j,k,l] = sum C[b,x,y,z] O[a,b] D[j,x] D[k,y] Q[l,z] with orthonormal columns, heads of the
core C are heads of S and back: projecting a layer onto the subspaces keeps its number of heads.
Sparse and low-dimensional layers become small problems.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Core:
    """The core (e', d', d', m') of a tensor and the bases that lead back."""

    tensor: NDArray[np.float64]
    outputs: NDArray[np.float64]
    dims: NDArray[np.float64]
    queries: NDArray[np.float64]

    def expand(self, value: NDArray, key: NDArray) -> tuple[NDArray, NDArray]:
        """Heads of the core as heads of the whole tensor."""
        return self.dims @ value @ self.outputs.T, self.dims @ key @ self.queries.T


def reduce(tensor: NDArray, tolerance: float) -> Core:
    """The smallest core of S (e, d, d, d) that misses at most ``tolerance`` of it in norm.

    Cost: three thin singular value decompositions, O(e d^3 (e + 2 d)).
    """
    n_outputs, n_dims, _, n_queries = tensor.shape
    # The token basis is used twice, so four projections share the tolerance.
    part = tolerance / 4.0
    outputs = _basis(tensor.reshape(n_outputs, -1), part)
    dims = _basis(tensor.transpose(1, 0, 2, 3).reshape(n_dims, -1), part)
    queries = _basis(tensor.transpose(3, 0, 1, 2).reshape(n_queries, -1), part)
    core = np.einsum("ajkl,ab->bjkl", tensor, outputs, optimize=True)
    core = core @ queries
    core = np.einsum("bjkz,jx,ky->bxyz", core, dims, dims, optimize=True)
    return Core(core, outputs, dims, queries)


def _basis(unfolding: NDArray, tolerance: float) -> NDArray[np.float64]:
    """Orthonormal columns whose span misses at most ``tolerance`` of the unfolding in norm."""
    # The triangular factor of the transpose has the same left singular vectors and is small.
    if unfolding.shape[1] > unfolding.shape[0]:
        unfolding = np.asarray(np.linalg.qr(unfolding.T, mode="r")).T
    left, sigma, _ = np.linalg.svd(unfolding, full_matrices=False)
    missed = np.sqrt(np.cumsum(sigma[::-1] ** 2))[::-1]
    return left[:, : max(1, int(np.count_nonzero(missed > tolerance)))]
