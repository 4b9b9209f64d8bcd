"""The kernel of linear attention: k((G, x), (G', x')) = <G, G'>_F <x, x'>.

It is the inner product of the features in the norm of T (off-diagonal features weigh sqrt(2)),
so a kernel machine minimises the same objective as the primal, whatever d is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.features.pairs import norm_weights
from polyattn.numerics.parallel import map_pieces

# Columns of the kernel that are finished together, so that no second N x N array is needed.
COLUMN_BLOCK = 256


def kernel(
    pairs: NDArray, queries: NDArray, other_pairs: NDArray, other_queries: NDArray
) -> NDArray[np.float64]:
    """The kernel (rows, other rows) between two sets of summaries."""
    weights = norm_weights(len(queries))[:, None] ** -2
    return (pairs.T @ (weights * other_pairs)) * (queries.T @ other_queries)


def kernel_lower(pairs: NDArray, queries: NDArray) -> NDArray[np.float64]:
    """The lower triangle of the kernel of one set with itself, Fortran order.

    Only the lower triangle (diagonal included) has meaning.
    Cost: N^2 q flops on all workers, and some N q above the diagonal; memory one N x N array.
    """
    weighted = pairs / norm_weights(len(queries))[:, None]
    size = pairs.shape[1]
    result = np.empty((size, size), order="F")

    def finish(start: int) -> None:
        stop = min(start + COLUMN_BLOCK, size)
        # Transposed, the columns of the result are contiguous rows: all are walked alike.
        columns = result.T[start:stop, start:]
        np.matmul(weighted[:, start:stop].T, weighted[:, start:], out=columns)
        columns *= queries[:, start:stop].T @ queries[:, start:]

    map_pieces(finish, range(0, size, COLUMN_BLOCK))
    return result
