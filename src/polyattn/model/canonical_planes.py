"""Heads with rotary positions written in one way: the planes of each frequency.

What inputs see of a head is one complex matrix N_g for each frequency (``offsets``).  A plane with
q_i and k_i adds q_i k_i^H to it, so N_g is a sum of as many terms of rank one as it has planes,
which are free up to a complex factor, and up to mixtures of planes of one frequency.  The singular
value decomposition of N_g chooses among them; at g = 0 and g = pi, where only Re N_g counts, a
plane holds two of its terms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from polyattn.model.offsets import components
from polyattn.model.softmax import SoftmaxAttention
from polyattn.numerics.scaling import EPS

# Singular values this near, relative to the largest, are taken together: rounding turns singular
# vectors by about eps over their distance.
NEAR = 1e-8

# The first row this near to the largest leads a basis: equal rows differ by rounding, and few
# layers have rows that differ by just this factor.
LEADING = 0.9


def written_in_planes(
    layer: SoftmaxAttention, heads: Sequence[int], value: NDArray, tolerance: float
) -> SoftmaxAttention:
    """The layer of these heads with this value (H, d, e), written in one way.

    Cost: O(H d m^2) for each frequency of m planes.
    """
    seen = list(components([layer], tolerance))
    if not any(each.frequency for each in seen):
        attn = seen[0].matrices[0] if seen else 0.0 * layer.attn
        return in_order(attn[list(heads)], value, layer)
    factors = [pair for each in seen for pair in each.factors]
    decomposed = [_decomposed(Q[list(heads)], K[list(heads)]) for Q, K in factors if K is not None]
    largest = max(float(sigma.max()) for _, sigma, _ in decomposed)
    rounding = max(tolerance, EPS * value.shape[1]) * largest
    written = []
    for each, (left, sigma, right) in zip(seen, decomposed, strict=True):
        rank = int(np.count_nonzero(sigma > rounding, axis=1).max())
        terms = [
            _terms(*head, rank, rounding, NEAR * largest)
            for head in zip(left, sigma, right, strict=True)
        ]
        columns = np.stack(terms, axis=1)
        written.append(_as_planes(columns) if each.is_real else columns)
    frequencies = [
        each.frequency for each, some in zip(seen, written, strict=True) for _ in some[0, 0, 0]
    ]
    pair = _halves(np.concatenate(written, axis=3))
    order = sorted(range(len(value)), key=lambda h: pair[:, h].ravel().tolist())
    return SoftmaxAttention(
        (pair[0, order], pair[1, order]), value[order], layer.mode, layer.bias, rotary=frequencies
    )


def in_order(attn: NDArray, value: NDArray, like: SoftmaxAttention) -> SoftmaxAttention:
    """A layer without positions, whose heads stand in the order of the entries of attn."""
    attn = attn + 0.0
    order = sorted(range(len(attn)), key=lambda h: attn[h].ravel().tolist())
    return SoftmaxAttention(attn[order], value[order], like.mode, like.bias)


def _decomposed(queries: NDArray, keys: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """The singular value decompositions of Q K^H for Q and K (H, d, m), through their bases."""
    (of_queries, left), (of_keys, right) = np.linalg.qr(queries), np.linalg.qr(keys)
    inner, sigma, outer = np.linalg.svd(left @ right.conj().transpose(0, 2, 1))
    return of_queries @ inner, sigma, outer @ of_keys.conj().transpose(0, 2, 1)


def _terms(
    left: NDArray, sigma: NDArray, right: NDArray, rank: int, rounding: float, near: float
) -> tuple[NDArray, NDArray]:
    """Q and K (d, rank) with Q K^H = left diag(sigma) right, so turned that they are unique."""
    kept = int(np.count_nonzero(sigma > rounding))
    roots = np.sqrt(sigma[:kept])
    queries, keys = left[:, :kept] * roots, right[:kept].conj().T * roots
    borders = np.flatnonzero(-np.diff(sigma[:kept]) > near) + 1
    for group in np.split(np.arange(kept), borders) if kept else ():
        turn = leading_rotation(left[:, group])
        queries[:, group], keys[:, group] = queries[:, group] @ turn, keys[:, group] @ turn
    padding = ((0, 0), (0, rank - kept))
    return np.pad(queries, padding), np.pad(keys, padding)


def _as_planes(factors: NDArray) -> NDArray[np.complex128]:
    """Real terms (2, H, d, rank) as complex columns, two in each."""
    padded = np.pad(factors, ((0, 0), (0, 0), (0, 0), (0, factors.shape[3] % 2)))
    return np.asarray(padded[..., 0::2] + 1j * padded[..., 1::2])


def _halves(columns: NDArray) -> NDArray[np.float64]:
    """Complex columns (2, H, d, r/2) as W_Q and W_K (2, H, d, r), in the half layout."""
    # Adding zero turns -0.0 into 0.0.
    return np.concatenate([columns.real, columns.imag], axis=3) + 0.0


def leading_rotation(basis: NDArray) -> NDArray:
    """Q orthogonal so that basis @ Q (n, k) depends on the space that it spans, and on no more.

    The first column is the projection of a coordinate vector onto the space, the next one that of
    another onto what is left of it, and so on; each time of the first coordinate with at least
    0.9 of the longest projection.  Of a complex basis Q is unitary.
    """
    rotation = np.eye(basis.shape[1], dtype=basis.dtype)
    for j in range(basis.shape[1]):
        rows = basis @ rotation[:, j:]
        sizes = np.linalg.norm(rows, axis=1)
        leading = rows[np.argmax(sizes >= LEADING * sizes.max())]
        turn, _ = qr(leading.conj()[:, None])
        first = leading @ turn[:, 0]
        rotation[:, j:] = rotation[:, j:] @ turn
        rotation[:, j] *= np.conj(first) / np.abs(first)
    return rotation
