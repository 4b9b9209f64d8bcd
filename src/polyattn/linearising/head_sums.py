"""HeadSums: the least-squares problem of one head as sums that stream over sequences.

A head of linear attention with query features phi (F,) and rows Z (G, c) predicts

    o^_t = sum_{f, l} phi_t[f] M[f, l] Z_t[l]            (c numbers),

which is linear in M: with features phi_t ⊗ Z_t[:, a] for each of the c numbers a of an output, the
normal equations are  sum_t (phi_t phi_t^T) ⊗ (Z_t Z_t^T).  Both factors are symmetric, so only
F(F+1)/2 times G(G+1)/2 entries differ, and one matrix product of pair products gives them all
(docs/derivations/paired_moments.md).  Where all positions of a sequence share the rows, the pair
products of its queries are added up first: no work of size F^2 G^2 for a token.
A window's row, which every position has of its own, is kept beside the shared ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.form.pairs import n_pairs, pair_index, pair_position
from polyattn.numerics.arrays import even_ranges

Array = NDArray[np.float64]

# Pair products of queries that are in memory together.
BLOCK_PRODUCTS = 1 << 22


class HeadBlock(NamedTuple):
    """Some sequences of one length, as one head sees them.

    phi : (B, T, F), features of the queries at the predicted positions
    rows : (B, 1, G, c) where all positions share them, else (B, T, G, c)
    own : (B, T, c), one more row for each position; or None
    targets : (B, T, c); (B, T, 0) where nobody needs them
    """

    phi: Array
    rows: Array
    own: Array | None
    targets: Array


class HeadSums:
    """Sums of one head: normal equations of M (F, G'), G' = G plus one with an own row.

    Attributes
    ----------
    shared, mixed, own : the entries of the Gram matrix that differ, by pairs of query features:
        (pairs of F, pairs of G), (pairs of F, G) and (pairs of F,)
    cross : (F, G'), sum phi ⊗ (Z o)
    power, total : sum of ||o||^2, and sum of o (c,)
    n_rows : the number of predicted positions

    Cost of ``add`` per block of B sequences: F^2 G^2 / 2 flops for each of the B sequences where
    rows are shared, and for each of the positions where they are not.
    """

    def __init__(self, n_query: int, n_rows_seen: int, n_values: int, own: bool = False) -> None:
        pairs = n_pairs(n_query)
        self.n_query, self.n_shared = n_query, n_rows_seen
        self.shared = np.zeros((pairs, n_pairs(n_rows_seen)))
        self.mixed = np.zeros((pairs, n_rows_seen if own else 0))
        self.own = np.zeros(pairs if own else 0)
        self.cross = np.zeros((n_query, n_rows_seen + own))
        self.power, self.total, self.n_rows = 0.0, np.zeros(n_values), 0

    @property
    def n_parameters(self) -> int:
        """p, the entries of M."""
        return self.cross.size

    @property
    def variance(self) -> float:
        """sum of ||o - mean||^2, what errors are relative to."""
        return max(self.power - float(self.total @ self.total) / max(self.n_rows, 1), 0.0)

    def add(self, block: HeadBlock) -> None:
        """Add the positions of some sequences of one length."""
        phi, rows, own, targets = block
        self.power += float(np.sum(targets * targets))
        self.total += targets.sum(axis=(0, 1))
        self.n_rows += targets.shape[0] * targets.shape[1]
        self.cross += correlated(block, targets)
        if rows.shape[1] == 1:
            self.shared += _query_pairs(phi).T @ _row_pairs(rows[:, 0])
            seen = None if own is None else own @ rows[:, 0].transpose(0, 2, 1)
        else:
            seen = None if own is None else np.einsum("btc,btgc->btg", own, rows)
        if rows.shape[1] > 1 or own is not None:
            self._add_positions(phi, rows, own, seen)

    def absorb(self, other: HeadSums) -> None:
        """Add sums of the same shape."""
        for name in ("shared", "mixed", "own", "cross", "total"):
            getattr(self, name).__iadd__(getattr(other, name))
        self.power += other.power
        self.n_rows += other.n_rows

    def matrix(self) -> Array:
        """The normal matrix (p, p) of M in the order (F, G')."""
        at, row_at = pair_position(self.n_query), pair_position(self.n_shared)
        F, G, width = self.n_query, self.n_shared, self.cross.shape[1]
        full = np.empty((F, width, F, width))
        for f in range(F):
            full[f, :G, :, :G] = self.shared[at[f]][:, row_at].transpose(1, 0, 2)
            if width > G:
                full[f, :G, :, G] = self.mixed[at[f]].T
                full[f, G, :, :G] = self.mixed[at[f]]
                full[f, G, :, G] = self.own[at[f]]
        return full.reshape(F * width, F * width)

    def _add_positions(
        self, phi: Array, rows: Array, own: Array | None, seen: Array | None
    ) -> None:
        """Add to the Gram matrix what every position has of its own; seen = Z own (B, T, G)."""
        i, j = pair_index(self.n_query)
        flat = phi.reshape(-1, self.n_query)
        for first, stop in even_ranges(len(flat), max(1, BLOCK_PRODUCTS // len(i))):
            products = flat[first:stop, i] * flat[first:stop, j]
            if rows.shape[1] > 1:
                some = rows.reshape(-1, *rows.shape[2:])[first:stop]
                self.shared += products.T @ _row_pairs(some)
            if own is not None and seen is not None:
                mine = own.reshape(-1, own.shape[2])[first:stop]
                self.mixed += products.T @ seen.reshape(-1, self.n_shared)[first:stop]
                self.own += np.sum(mine * mine, axis=1) @ products


def correlated(block: HeadBlock, outputs: Array) -> Array:
    """sum over positions of phi ⊗ (Z o), (F, G'), for outputs o (B, T, c)."""
    phi, rows, own, _ = block
    n_query = phi.shape[2]
    if rows.shape[1] == 1:
        moved = phi.transpose(0, 2, 1) @ outputs  # (B, F, c)
        found = np.tensordot(moved, rows[:, 0], axes=([0, 2], [0, 2]))
    else:
        seen = (rows @ outputs[..., None])[..., 0].reshape(-1, rows.shape[2])
        found = phi.reshape(-1, n_query).T @ seen
    if own is None:
        return np.asarray(found)
    along = np.sum(own * outputs, axis=-1)
    return np.column_stack([found, phi.reshape(-1, n_query).T @ along.ravel()])


def _query_pairs(phi: Array) -> Array:
    """vech(Phi^T Phi) (B, F(F+1)/2) of phi (B, T, F)."""
    return np.ascontiguousarray((phi.transpose(0, 2, 1) @ phi)[:, *pair_index(phi.shape[2])])


def _row_pairs(rows: Array) -> Array:
    """vech(Z Z^T) (B, G(G+1)/2) of rows (B, G, c)."""
    return np.ascontiguousarray((rows @ rows.transpose(0, 2, 1))[:, *pair_index(rows.shape[1])])
