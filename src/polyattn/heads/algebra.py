"""Heads of one scale as a product, its adjoints, and the part of it that data see.

Inside this folder a head is a pair (value, key) with key = attn^T, so that both halves look alike:
T[a,c,b,l] = sum_h value[h,c,a] key[h,b,l],  value (H, n_values, e), key (H, n_keys, r).
Columns that are both values and keys stand first on both sides, ``shared`` of them (None: all).
Where c and b are both shared, data see only the part of T that is symmetric in (c,b).

For whole tokens that is  M(y) = sum_cb T[:,c,b,:] y_c y_b = sum_h (V_h^T y)(A_h y)^T,  a matrix of
quadratic forms written as a product of H linear columns and H linear rows.  With ``shared`` = 0
nothing folds: T is seen whole, and H is the rank of its unfolding [(a,c), (b,l)].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def layer_tensor(value: NDArray, key: NDArray, shared: int | None = None) -> NDArray[np.float64]:
    """sym T (e, n_values, n_keys, r), what data see of T.  Cost: O(H) times its size."""
    n_heads, n_values, n_outputs = value.shape
    left = value.transpose(2, 1, 0).reshape(n_outputs * n_values, n_heads)
    tensor = left @ _rows(key)
    return symmetrised(tensor.reshape(n_outputs, n_values, *key.shape[1:]), shared)


def symmetrised(tensor: NDArray, shared: int | None = None) -> NDArray[np.float64]:
    """(T + T^sigma) / 2, where sigma exchanges the shared values and keys (..., c, b, l)."""
    n_values, n_keys = tensor.shape[-3:-1]
    if shared is None or shared == n_values == n_keys:
        return 0.5 * (tensor + np.swapaxes(tensor, -3, -2))
    if shared < 2:
        return tensor
    result = tensor.copy()
    block = tensor[..., :shared, :shared, :]
    result[..., :shared, :shared, :] = 0.5 * (block + np.swapaxes(block, -3, -2))
    return result


def pull_value(tensor: NDArray, key: NDArray) -> NDArray[np.float64]:
    """For symmetric R, d<R, T>/dvalue[h,c,a] = sum_bl R[a,c,b,l] key[h,b,l]."""
    n_outputs, n_values = tensor.shape[:2]
    flat = tensor.reshape(n_outputs * n_values, -1) @ _rows(key).T
    return flat.reshape(n_outputs, n_values, len(key)).transpose(2, 1, 0)


def pull_key(tensor: NDArray, value: NDArray) -> NDArray[np.float64]:
    """For symmetric R, d<R, T>/dkey[h,b,l] = sum_ac R[a,c,b,l] value[h,c,a]."""
    n_outputs, n_values, n_keys, n_queries = tensor.shape
    left = value.transpose(0, 2, 1).reshape(len(value), n_outputs * n_values)
    flat = left @ tensor.reshape(n_outputs * n_values, -1)
    return flat.reshape(len(value), n_keys, n_queries)


def jacobian(value: NDArray, key: NDArray, shared: int | None = None) -> NDArray[np.float64]:
    """d sym T / d(value, key) as an array (n, e, n_values, n_keys, r), n = size of both."""
    n_values, n_outputs = value.shape[1:]
    n_keys, n_queries = key.shape[1:]
    values, outputs = np.eye(n_values), np.eye(n_outputs)
    keys, queries = np.eye(n_keys), np.eye(n_queries)
    shape = (-1, n_outputs, n_values, n_keys, n_queries)
    by_value = np.einsum("ci,ad,hbl->hcadibl", values, outputs, key).reshape(shape)
    by_key = np.einsum("hca,bi,lm->hblacim", value, keys, queries).reshape(shape)
    return symmetrised(np.concatenate([by_value, by_key]), shared)


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


def split_heads(
    tensor: NDArray, n_heads: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Heads of T from the singular value decomposition of its unfolding [(a,c), (b,l)].

    Zero singular values are dropped; ``n_heads`` keeps only the largest.  At least one head.
    Where nothing folds, no layer with so many heads is nearer (Eckart-Young).
    Cost: O(r^2 s) with r <= s the sides of the unfolding.
    """
    n_outputs, n_values, n_keys, n_queries = tensor.shape
    matrix = tensor.reshape(n_outputs * n_values, n_keys * n_queries)
    left, sigma, right = np.linalg.svd(matrix, full_matrices=False)
    cutoff = float(np.finfo(np.float64).eps) * max(matrix.shape) * sigma[0]
    kept = max(1, int(np.count_nonzero(sigma > cutoff)))
    kept = kept if n_heads is None else min(kept, n_heads)
    root = np.sqrt(sigma[:kept])
    value = (left[:, :kept] * root).T.reshape(kept, n_outputs, n_values).transpose(0, 2, 1)
    return value, (right[:kept] * root[:, None]).reshape(kept, n_keys, n_queries)


def _rows(heads: NDArray) -> NDArray:
    """One row for each head, of which there may be none."""
    return heads.reshape(len(heads), heads.shape[1] * heads.shape[2])
