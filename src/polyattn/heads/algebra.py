"""Heads as a symmetrised product, its adjoints, and the small core of a function.

Inside this folder a head is a pair (value, key) with key = attn^T, so that both halves look
alike:  T[a,j,k,l] = sum_h value[h,j,a] key[h,k,l],  value (H, d, e), key (H, d, m).
Usually m = d; it is smaller after ``reduce``.  Data see only the part of T that is symmetric
in (j,k):  M(y) = sum_jk T[:,j,k,:] y_j y_k = sum_h (V_h^T y)(A_h y)^T,  a matrix of quadratic
forms written as a product of H linear columns and H linear rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

# From the heads (value, key) of a smaller or rounder problem to those of the given one.
Restore: TypeAlias = Callable[[NDArray, NDArray], tuple[NDArray, NDArray]]


def layer_tensor(value: NDArray, key: NDArray) -> NDArray[np.float64]:
    """sym T (e, d, d, m), the symmetric part in (j,k).  Cost: O(H e d^2 m)."""
    n_heads, width, n_outputs = value.shape
    left = value.transpose(2, 1, 0).reshape(n_outputs * width, n_heads)
    tensor = left @ key.reshape(n_heads, -1)
    return symmetrised(tensor.reshape(n_outputs, width, width, -1))


def symmetrised(tensor: NDArray) -> NDArray[np.float64]:
    """(T + T^sigma) / 2, where sigma exchanges the third- and second-last axes before l."""
    return 0.5 * (tensor + np.swapaxes(tensor, -3, -2))


def change_tensor(
    value: NDArray, key: NDArray, value_step: NDArray, key_step: NDArray
) -> NDArray[np.float64]:
    """The derivative of ``layer_tensor`` along a step: sym(dV B + V dB), one product."""
    return layer_tensor(np.concatenate([value_step, value]), np.concatenate([key, key_step]))


def pull_value(tensor: NDArray, key: NDArray) -> NDArray[np.float64]:
    """For symmetric R, d<R, T>/dvalue[h,j,a] = sum_kl R[a,j,k,l] key[h,k,l]."""
    n_outputs, width = tensor.shape[:2]
    flat = tensor.reshape(n_outputs * width, -1) @ key.reshape(len(key), -1).T
    return flat.reshape(n_outputs, width, -1).transpose(2, 1, 0)


def pull_key(tensor: NDArray, value: NDArray) -> NDArray[np.float64]:
    """For symmetric R, d<R, T>/dkey[h,k,l] = sum_aj R[a,j,k,l] value[h,j,a]."""
    n_outputs, width = tensor.shape[:2]
    left = value.transpose(0, 2, 1).reshape(len(value), n_outputs * width)
    flat = left @ tensor.reshape(n_outputs * width, -1)
    return flat.reshape(len(value), width, -1)


def balanced(value: NDArray, key: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same T with orthogonal heads, ||V_h|| = ||A_h||, largest first.

    Of all invertible mixtures of heads, which leave T alone, its singular value decomposition as
    a matrix of rank H picks this one.  Heads beyond the rank that T can have become zero.
    """
    left, left_triangle = np.linalg.qr(value.reshape(len(value), -1).T)
    right, right_triangle = np.linalg.qr(key.reshape(len(key), -1).T)
    u, sigma, vt = np.linalg.svd(left_triangle @ right_triangle.T, full_matrices=False)
    root = np.sqrt(sigma)
    new_value, new_key = np.zeros(value.shape), np.zeros(key.shape)
    new_value[: len(root)] = ((left @ u) * root).T.reshape(-1, *value.shape[1:])
    new_key[: len(root)] = ((right @ vt.T) * root).T.reshape(-1, *key.shape[1:])
    return new_value, new_key


def split_heads(tensor: NDArray, n_heads: int | None = None) -> tuple[NDArray, NDArray]:
    """Heads of T from the singular value decomposition of its unfolding [(a,j), (k,l)].

    Zero singular values are dropped; ``n_heads`` keeps only the largest.  At least one head.
    Cost: O(r^2 s) with r <= s the sides e d and d m.
    """
    n_outputs, width, _, n_queries = tensor.shape
    matrix = tensor.reshape(n_outputs * width, width * n_queries)
    left, sigma, right = np.linalg.svd(matrix, full_matrices=False)
    cutoff = float(np.finfo(np.float64).eps) * max(matrix.shape) * sigma[0]
    kept = max(1, int(np.count_nonzero(sigma > cutoff)))
    kept = kept if n_heads is None else min(kept, n_heads)
    root = np.sqrt(sigma[:kept])
    value = (left[:, :kept] * root).T.reshape(kept, n_outputs, width).transpose(0, 2, 1)
    return value, (right[:kept] * root[:, None]).reshape(kept, width, n_queries)


def reduce(tensor: NDArray, tolerance: float) -> tuple[NDArray[np.float64], Restore]:
    """The smallest core of S (e, d, d, d) that misses at most ``tolerance`` of it in norm.

    If S[a,j,k,l] = sum C[b,x,y,z] O[a,b] D[j,x] D[k,y] Q[l,z] with orthonormal columns, heads of
    the core C (e', d', d', m') are heads of S and back: projecting a layer onto the subspaces keeps
    its number of heads.  Sparse and low-dimensional layers become small problems.
    Cost: three thin singular value decompositions, O(e d^3 (e + 2 d)).
    """
    n_outputs, width, _, n_queries = tensor.shape
    # The token basis is used twice, so four projections share the tolerance.
    part = tolerance / 4.0
    outputs = _basis(tensor.reshape(n_outputs, -1), part)
    dims = _basis(tensor.transpose(1, 0, 2, 3).reshape(width, -1), part)
    queries = _basis(tensor.transpose(3, 0, 1, 2).reshape(n_queries, -1), part)
    core = np.einsum("ajkl,ab->bjkl", tensor, outputs, optimize=True)
    core = core @ queries
    core = np.einsum("bjkz,jx,ky->bxyz", core, dims, dims, optimize=True)

    def expand(value: NDArray, key: NDArray) -> tuple[NDArray, NDArray]:
        return dims @ value @ outputs.T, dims @ key @ queries.T

    return core, expand


def _basis(unfolding: NDArray, tolerance: float) -> NDArray[np.float64]:
    """Orthonormal columns whose span misses at most ``tolerance`` of the unfolding in norm."""
    # The triangular factor of the transpose has the same left singular vectors and is small.
    if unfolding.shape[1] > unfolding.shape[0]:
        unfolding = np.asarray(np.linalg.qr(unfolding.T, mode="r")).T
    left, sigma, _ = np.linalg.svd(unfolding, full_matrices=False)
    missed = np.sqrt(np.cumsum(sigma[::-1] ** 2))[::-1]
    return left[:, : max(1, int(np.count_nonzero(missed > tolerance)))]
