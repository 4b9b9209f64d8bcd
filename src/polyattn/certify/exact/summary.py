"""Rows reduced to residues of their summaries; features and products made from them on demand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.exact.modular import INNER, Residues, centre, multiply
from polyattn.numerics.arrays import even_ranges
from polyattn.numerics.parallel import map_pieces

# Terms added together: so many products of residues, and a carry, are exact.
TOKENS = INNER - 1

# Features that a thread makes at a time, and numbers in a block of partial products.
TILE_NUMBERS, PRODUCT_NUMBERS = 1 << 16, 1 << 21


@dataclass(frozen=True, eq=False)
class Summary:
    """Rows first..stop, reduced to what their features are products of."""

    prime: int | None
    first: int
    pairs: Residues  # (rows, u): the used entries of the token Gram
    queries: Residues  # (rows, d)
    factors: tuple[NDArray[np.int64], NDArray[np.int64]]  # of each column: its pair, its query

    @property
    def stop(self) -> int:
        """The first row behind the block."""
        return self.first + len(self.pairs)

    def features(self, which: NDArray[np.int64] | None = None) -> Residues:
        """The features (rows, n_columns) of all rows of the block, or of those chosen."""
        numbers = np.arange(len(self.pairs)) if which is None else which
        pair, query = self.factors
        result = np.empty((len(numbers), len(pair)))
        if not len(numbers):
            return result

        def fill(span: tuple[int, int]) -> None:
            some, out = numbers[slice(*span)], result[slice(*span)]
            np.take(self.pairs[some], pair, axis=1, out=out, mode="clip")
            out *= self.queries[some][:, query]
            settle(out, self.prime)

        map_pieces(fill, list(even_ranges(len(numbers), max(1, TILE_NUMBERS // result.shape[1]))))
        return result

    def products(self, vectors: NDArray) -> Residues:
        """psi . v (rows, k) for vectors (n_columns, k); features are not formed.

        Cost: 2 u d k flops per row.
        """
        products = np.empty((len(self.pairs), vectors.shape[1]))
        width = max(1, PRODUCT_NUMBERS // self.queries.size)
        for start, stop in even_ranges(vectors.shape[1], width):
            products[:, start:stop] = self._some_products(vectors[:, start:stop])
        return products

    def _some_products(self, vectors: NDArray) -> Residues:
        n_pairs, n_dims, n_vectors = self.pairs.shape[1], self.queries.shape[1], vectors.shape[1]
        weights = np.zeros((n_pairs, n_dims * n_vectors))
        # Adds where a column was chosen twice.
        np.add.at(weights.reshape(n_pairs, n_dims, n_vectors), self.factors, vectors)
        settle(weights, self.prime)
        if self.prime is None:
            flat = self.pairs @ weights
        else:
            flat = multiply(self.pairs, weights, self.prime)
        by_query = flat.reshape(-1, n_dims, n_vectors)
        total = np.zeros((len(self.pairs), n_vectors))
        for start, stop in even_ranges(n_dims, TOKENS):
            some = slice(start, stop)
            total += np.einsum("rlk,rl->rk", by_query[:, some], self.queries[:, some])
            settle(total, self.prime)
        return total


def settle(values: Residues, prime: int | None) -> None:
    """Reduce modulo the prime; integers stay as they are."""
    if prime is not None:
        centre(values, prime)
