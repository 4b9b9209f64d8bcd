"""Coordinates in which heads are easy to find: few of them, or round ones.

A linear change of output, query, value and key coordinates maps heads to heads.  Where columns
are both value and key, the fold survives only if both sides change them alike and keep them apart
from the others: so values change by  L_shared + L_values  and keys by  L_shared + L_keys,  each
block by itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from polyattn.form.pairs import fold_tensor
from polyattn.heads.head_set import Restore
from polyattn.heads.metric import Metric, ordered_pairs

# Directions below this part of the largest (after equal scaling) are not taken by any token.
UNSEEN = 1e-12
# Smaller directions are not enlarged further: that would enlarge the rounding of M with them.
FLOOR = 1e-4


def reduce(
    tensor: NDArray, tolerance: float, metric: Metric | None = None
) -> tuple[NDArray[np.float64], Metric, Restore]:
    """The smallest core of S (J e, n_values, n_keys, r) that misses ``tolerance`` of its norm.

    If S[a,c,b,l] = sum C[i,x,y,z] O[a,i] D[c,x] E[b,y] Q[l,z] with orthonormal columns, heads of
    the core C are heads of S and back: projecting a layer onto the subspaces keeps its number of
    heads.  D and E are made of blocks as above.  All scales share the subspaces.  Sparse and
    low-dimensional layers become small problems, and partly folded ones often unfolded ones.

    metric : the fold; that of whole tokens by default.  The second result is the fold of the core.
    Cost: thin singular value decompositions of the unfoldings, O(e d^3 (e + 2 d)) for whole tokens.
    """
    fold = metric or Metric()
    by_scale = tensor.reshape(fold.n_scales, -1, *tensor.shape[1:])
    # A basis that is used twice counts twice: at most six projections share the tolerance.
    whole = _is_whole(tensor, fold)
    part = tolerance / (4.0 if whole or not fold.shared else 6.0)
    outputs = _basis(by_scale.swapaxes(0, 1).reshape(by_scale.shape[1], -1), part)
    queries = _basis(tensor.transpose(3, 0, 1, 2).reshape(tensor.shape[3], -1), part)
    values = tensor.transpose(1, 0, 2, 3).reshape(tensor.shape[1], -1)
    keys = tensor.transpose(2, 0, 1, 3).reshape(tensor.shape[2], -1)
    if whole:
        # The symmetric S has the same values and keys.
        value_basis = key_basis = _basis(values, part)
        shared: int | None = None
    else:
        first = fold.shared or 0
        both = _basis(np.hstack([values[:first], keys[:first]]), part, least=0)
        own_values, own_keys = (_basis(own[first:], part, least=0) for own in (values, keys))
        value_basis, key_basis = block_diag(both, own_values), block_diag(both, own_keys)
        shared = both.shape[1]
    core = np.einsum("jacbl,ai->jicbl", by_scale, outputs, optimize=True) @ queries
    core = np.einsum("jicbz,cx,by->jixyz", core, value_basis, key_basis, optimize=True)

    def expand(value: NDArray, key: NDArray) -> tuple[NDArray, NDArray]:
        return value_basis @ value @ outputs.T, key_basis @ key @ queries.T

    return core.reshape(-1, *core.shape[2:]), Metric(None, shared, fold.n_scales), expand


def whiten(
    tensor: NDArray, gram: NDArray, metric: Metric | None = None
) -> tuple[NDArray[np.float64], Metric, Restore]:
    """S (J e, n_values, n_keys, r) of norm one or zero, and the moments M (p, p), in round ones.

    There the marginals of M over values, keys and queries are round, and directions that no token
    takes are dropped.  Heads come back by V = L^-T V', A^T = L^-T A'^T K^-1.

    metric : the fold; that of whole tokens by default
    Cost: O(p^2 (q + r)) with q pairs.
    """
    fold = metric or Metric()
    n_queries = tensor.shape[3]
    scale = float(np.max(np.diag(gram))) or 1.0
    old = ordered_pairs(tensor.shape[1:3], fold.shared)
    n_scales, n_pairs = fold.n_scales, len(old)
    blocks = (gram / scale).reshape(n_scales, n_pairs, n_queries, n_scales, n_pairs, n_queries)
    over_queries = np.einsum("jpljrl->pr", blocks)
    spread = over_queries[old.position][:, :, old.position]
    value_root, key_root, shared = _roots(
        # sum_b <(v_c k_b)(v_i k_b)>: what one value contributes beside any key.
        np.einsum("cbib->ci", spread),
        lambda: np.einsum("cbci->bi", spread),
        None if _is_whole(tensor, fold) else fold.shared or 0,
    )
    query_root, queries = _root(np.einsum("jpljpm->lm", blocks))
    (root, values), (other_root, keys) = value_root, key_root
    new = np.einsum("acbl,cx,by,lz->axyz", tensor, root, other_root, query_root, optimize=True)
    norm = float(np.linalg.norm(new))
    pairs = ordered_pairs(new.shape[1:3], shared)
    # (q', q): the products of L^-1 v and L^-1 k from those of v and k
    at_value, at_key = pairs.first
    products = values[at_value][:, :, None] * keys[at_key][:, None, :]
    change = fold_tensor(products[..., None], old)[..., 0]
    # (pairs (x) queries) M (pairs (x) queries)^T without the Kronecker product
    moved: NDArray = blocks.reshape(gram.shape)
    for _ in range(2):
        half = change @ moved.reshape(n_scales, n_pairs, -1)
        half = queries @ half.reshape(n_scales * len(change), n_queries, -1)
        moved = half.reshape(n_scales * len(change) * len(queries), -1).T
    weights = np.tile(np.repeat(pairs.norm_weights, len(queries)), n_scales)
    # Mean eigenvalue one in the coordinates of the Frobenius norm, as the descent expects.
    moved /= np.mean(np.diag(moved) / weights**2) or 1.0

    def restore(value: NDArray, key: NDArray) -> tuple[NDArray, NDArray]:
        return norm * (values.T @ value), keys.T @ key @ queries

    return new / (norm or 1.0), Metric(moved, shared, n_scales), restore


def _is_whole(tensor: NDArray, fold: Metric) -> bool:
    """Whether values and keys are the same columns, so that all products fold."""
    return fold.shared is None or fold.shared == tensor.shape[1] == tensor.shape[2]


# L (d, d') and its left inverse (d', d).
Root = tuple[NDArray[np.float64], NDArray[np.float64]]


def _roots(
    of_values: NDArray, of_keys: Callable[[], NDArray], shared: int | None
) -> tuple[Root, Root, int | None]:
    """Roots of the moments of values and of keys, and how many columns they share then."""
    if shared is None:
        root = _root(of_values)
        return root, root, None
    keys = of_keys()
    both = of_values[:shared, :shared] + keys[:shared, :shared]
    parts = both, of_values[shared:, shared:], keys[shared:, shared:]
    common, own_values, own_keys = (_root(part) for part in parts)
    value, key = (
        (block_diag(common[0], own[0]), block_diag(common[1], own[1]))
        for own in (own_values, own_keys)
    )
    return value, key, common[0].shape[1]


def _basis(unfolding: NDArray, tolerance: float, least: int = 1) -> NDArray[np.float64]:
    """Orthonormal columns whose span misses at most ``tolerance`` of the unfolding in norm."""
    if len(unfolding) == 0:
        return np.zeros((0, 0))
    # The triangular factor of the transpose has the same left singular vectors and is small.
    if unfolding.shape[1] > unfolding.shape[0]:
        unfolding = np.asarray(np.linalg.qr(unfolding.T, mode="r")).T
    left, sigma, _ = np.linalg.svd(unfolding, full_matrices=False)
    missed = np.sqrt(np.cumsum(sigma[::-1] ** 2))[::-1]
    return left[:, : max(least, int(np.count_nonzero(missed > tolerance)))]


def _root(moments: NDArray) -> Root:
    """L (d, d') with L L^T about the moments, and its left inverse (d', d)."""
    if len(moments) == 0:
        return np.zeros((0, 0)), np.zeros((0, 0))
    # Coordinates are first brought to equal size, which costs no accuracy whatever their units.
    size = np.sqrt(np.maximum(np.diag(moments), 0.0))
    inverse_size = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    eigenvalues, vectors = np.linalg.eigh(moments * inverse_size * inverse_size[:, None])
    seen = eigenvalues > UNSEEN * max(eigenvalues[-1], 1.0)
    seen[-1] = True
    root = np.sqrt(np.maximum(eigenvalues[seen], FLOOR))
    vectors = vectors[:, seen]
    return size[:, None] * vectors * root, (vectors / root).T * inverse_size
