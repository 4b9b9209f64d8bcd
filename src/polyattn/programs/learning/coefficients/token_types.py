"""Token types: kinds of last tokens that say nothing about each other.

Let X_1, X_2, ... be independent subspaces (none meets the sum of the others) such that every
last token of the training data lies in one of them.  The features G ⊗ x of rows of one type lie
in Sym ⊗ X_t, and these spaces are independent, too: whether a row is in the span of others is
decided among the rows of its own type.  The finest such subspaces are the components of the
linear matroid of the last tokens: write each token in a basis of tokens, and join what occurs
in one expression.

Types that are orthogonal as well (tokens with no coordinate in common) make the kernel block
diagonal: then the least squares problem itself falls apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

# Coefficients and residuals of small integer vectors are zero, or far above this.
ZERO = 1e-7


@dataclass(frozen=True, eq=False)
class TokenTypes:
    """The types of last tokens, found by ``TokenTypes.of``.

    basis : array (r, d), last tokens that are linearly independent and span all others
    inverse : array (d, r), x @ inverse are the coefficients of x in the basis, for x in its span
    kinds : integer array (r,), the type of each vector of the basis
    """

    basis: NDArray[np.float64]
    inverse: NDArray[np.float64]
    kinds: NDArray[np.int64]

    @classmethod
    def of(cls, queries: NDArray) -> TokenTypes:
        """The finest types of the last tokens (N, d).  Cost: O(k d^2) for k different ones."""
        different = np.unique(queries, axis=0)
        _, triangle, order = qr(different.T, mode="economic", pivoting=True)
        sizes = np.abs(triangle.diagonal())
        rank = int(np.count_nonzero(sizes > ZERO * max(1.0, sizes.max(initial=0.0))))
        basis = different[np.sort(order[:rank])]
        inverse = np.linalg.pinv(basis)
        _, kinds = _connected(np.abs(different @ inverse) > ZERO)
        return cls(basis, inverse, np.unique(kinds, return_inverse=True)[1])

    @property
    def n_types(self) -> int:
        """How many types there are."""
        return int(self.kinds.max(initial=-1)) + 1

    def part(self, queries: NDArray, kind: int) -> NDArray[np.float64]:
        """The part (m, d) of tokens (m, d) that lies in the subspace of one type."""
        here = self.kinds == kind
        part = (queries @ self.inverse[:, here]) @ self.basis[here]
        # What is whole numbers apart from rounding is whole numbers: most parts are zero or all.
        whole = np.rint(part)
        return np.where(np.abs(part - whole) < ZERO, whole, part)

    def unknown(self, queries: NDArray) -> NDArray[np.bool_]:
        """Which tokens (m, d) are no combination of last tokens seen in training."""
        rest = queries - (queries @ self.inverse) @ self.basis
        sizes = np.linalg.norm(queries, axis=1)
        return np.linalg.norm(rest, axis=1) > ZERO * np.maximum(sizes, 1.0)

    def assign(self, queries: NDArray) -> NDArray[np.int64]:
        """The type of each training token (N,); -1 for a token that is zero."""
        sizes = np.abs(queries @ self.inverse) @ np.eye(max(1, self.n_types))[self.kinds]
        return np.where(sizes.any(axis=1), sizes.argmax(axis=1), -1)


def orthogonal_groups(queries: NDArray) -> NDArray[np.int64]:
    """Numbers (N,) of groups of rows whose last tokens (N, d) share no coordinate.

    Coordinates that occur together in a token are joined; rows of different groups have kernel
    zero.  A token that is zero belongs to group -1: it says nothing.
    """
    held = queries.any(axis=1)
    groups = np.full(len(queries), -1)
    groups[held] = np.unique(_connected(queries != 0)[0][held], return_inverse=True)[1]
    return groups


def _connected(linked: NDArray[np.bool_]) -> tuple[NDArray, NDArray]:
    """The numbers of the connected components of rows (m,) and of columns (n,)."""
    rows, columns = np.nonzero(linked)
    size, n_columns = sum(linked.shape), linked.shape[1]
    graph = coo_matrix((np.ones(len(rows)), (rows + n_columns, columns)), shape=(size, size))
    labels = connected_components(graph, directed=False)[1]
    return labels[n_columns:], labels[:n_columns]
