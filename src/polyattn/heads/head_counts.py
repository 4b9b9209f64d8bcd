"""How many heads a function needs: a proved bound, and what counting parameters says.

Shapes are those of tensors (e, n_values, n_keys, r) of one scale, ``shared`` as in ``algebra``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from polyattn.heads.metric import ordered_pairs

# Rounding of a contraction of a tensor of norm one with unit vectors.
ROUNDING = 1e-14
PROBES = 4


def least_heads(
    tensor: NDArray, tolerance: float, rng: np.random.Generator, shared: int | None = None
) -> int:
    """A number of heads below which no layer is within ``tolerance`` of S (norm one).

    Whole tokens: for unit vectors y, c, x the layer's matrices
        M(y)[a,l]  = sum_jk S[a,j,k,l] y_j y_k = sum_h (V_h^T y)(A_h y)^T      has rank <= H,
        Q(c,x)[j,k] = sum_al S[a,j,k,l] c_a x_l = sum_h sym(V_h c (A_h^T x)^T)  has rank <= 2 H,
    and differ from those of S by at most ||S - sym T||_F.
    Where only some columns are shared, these are the same with one direction y of them beside the
    other columns, and products of the other columns with all are seen unfolded, so they have
    rank <= H; where none are, that is all of S.

    Guarantee: every layer with fewer heads has lost > tolerance (Eckart-Young); for a generic
    layer of whole tokens with H <= max(min(e, d), d/2) heads the bound is H itself, with
    probability one, and where nothing folds it is always met.
    Cost: one singular value decomposition of each matrix.
    """
    if _n_shared(tensor.shape, shared) < 2:
        sigma = np.linalg.svd(_unfolded(tensor), compute_uv=False)
        tails = np.sqrt(np.cumsum(sigma[::-1] ** 2))[::-1]
        return max(1, int(np.count_nonzero(tails > tolerance + ROUNDING)))
    least = 1
    for matrix, most, per_head in _seen_matrices(tensor, rng, shared):
        sigma = np.linalg.svd(matrix, compute_uv=False)
        rank = int(np.count_nonzero(sigma > most * tolerance + ROUNDING))
        least = max(least, -(-rank // per_head))
    return least


def layer_dimension(n_heads: int, shape: tuple[int, ...], shared: int | None = None) -> int:
    """The dimension of the set of functions with ``n_heads`` generic heads.

        H (e v + k r - H) - r syz(e) - e syz(r),    at most e q r,

    for v values, k keys and q pairs: parameters less the (H, H) mixtures of heads, less the ways in
    which linear forms cancel.  Of whole tokens, syz(e) counts linear columns c(y) with
    (V_1^T y, ..., V_H^T y) c(y) = 0 for all y.  Values that are no keys leave only the H - e (v -
    shared) mixtures of heads that they do not see.  Where nothing folds, nothing cancels.
    """
    # More heads never span less; past the peak of the formula the cancellations overlap.
    return max((_counted(h, shape, shared) for h in range(1, n_heads + 1)), default=0)


def generic_heads(shape: tuple[int, ...], shared: int | None = None) -> int:
    """The fewest heads whose functions fill the whole space, as parameters are counted."""
    full, most = _n_coefficients(shape, shared), most_heads(shape)
    return next((h for h in range(1, most) if _counted(h, shape, shared) == full), most)


def most_heads(shape: tuple[int, ...]) -> int:
    """The largest rank of an unfolding: so many heads suffice for any function."""
    n_outputs, n_values, n_keys, n_queries = shape
    return min(n_outputs * n_values, n_keys * n_queries)


def _seen_matrices(
    tensor: NDArray, rng: np.random.Generator, shared: int | None
) -> Iterator[tuple[NDArray, float, int]]:
    """Matrices of a layer, how much they enlarge a change of it, and their rank per head."""
    first = _n_shared(tensor.shape, shared)
    n_outputs, n_values, n_keys, n_queries = tensor.shape
    whole = first == n_values == n_keys
    if not whole:
        for own in (tensor[:, first:], tensor[:, :, first:]):
            if own.size:
                yield _unfolded(own), 1.0, 1
    doubled = tensor
    if not whole:
        # Twice the shared block is V c (A^T x)^T with its own values and keys, and one term more.
        doubled = tensor.copy()
        doubled[:, :first, :first] *= 2.0
    for _ in range(PROBES):
        vectors = (rng.standard_normal(size) for size in (first, n_outputs, n_queries))
        y, c, x = (vector / np.linalg.norm(vector) for vector in vectors)
        form = np.tensordot(c, doubled @ x, 1)
        if whole:
            yield y @ (y @ tensor), 1.0, 1
            yield form, 1.0, 2
            continue
        values, keys = (block_diag(y[:, None], np.eye(n - first)) for n in (n_values, n_keys))
        at_point = np.einsum("acbl,cx,by->axyl", tensor, values, keys, optimize=True)
        yield _unfolded(at_point), 1.0, 1
        yield form, 2.0, 2


def _unfolded(tensor: NDArray) -> NDArray:
    """The matrix [(a,c), (b,l)]."""
    n_outputs, n_values, n_keys, n_queries = tensor.shape
    return tensor.reshape(n_outputs * n_values, n_keys * n_queries)


def _n_shared(shape: tuple[int, ...], shared: int | None) -> int:
    return shape[1] if shared is None else shared


def _n_coefficients(shape: tuple[int, ...], shared: int | None) -> int:
    """e q r for q pairs."""
    return shape[0] * len(ordered_pairs(shape[1:3], shared)) * shape[3]


def _counted(n_heads: int, shape: tuple[int, ...], shared: int | None) -> int:
    """The formula of ``layer_dimension``."""
    n_outputs, n_values, n_keys, n_queries = shape
    both = _n_shared(shape, shared)
    free = n_heads * (n_values * n_outputs + n_keys * n_queries - n_heads)
    unseen = n_heads - n_outputs * (n_values - both), n_heads - n_queries * (n_keys - both)
    free -= n_queries * _syzygies(unseen[0], both, n_outputs)
    free -= n_outputs * _syzygies(unseen[1], both, n_queries)
    return min(_n_coefficients(shape, shared), free)


def _syzygies(n_heads: int, width: int, n_rows: int) -> int:
    """Linear columns c(y) that n_rows x n_heads generic linear forms send to zero."""
    if n_heads <= 0 or width < 2:
        return 0
    forced = n_heads * width - n_rows * (width * (width + 1) // 2)
    # One row of forms always cancels in pairs: u_1 u_2 - u_2 u_1 = 0.
    paired = n_heads * (n_heads - 1) // 2 if n_rows == 1 and n_heads <= width else 0
    return max(forced, paired, 0)
