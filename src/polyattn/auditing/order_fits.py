"""Least-squares fits of nested orders to the outputs of one softmax head, from sums over tokens.

At a predicted position t with whitened token w_t, query features phi_t and means Z_t of key
features times values over the tokens that t attends to, an order is a set of pairs (i, j) that M
may use:

    y_t  ~  [1, w_t] W  +  phi_t M Z_t,        Z_t = (1 / n_t) sum_s psi_s v_s^T.

    token       no pairs: a linear map of the token itself
    mean        (1, 1) alone: the mean of the values
    linear      queries [1, a] and keys [1, b]: linear attention
    second      and products of two leading coordinates of queries and of keys

All are solved by one factor.  W is eliminated, X = [1, w]:

    G_(ij)(kl) = sum_t phi_ti phi_tk Z_tj . Z_tl - <C_ij, (X^T X)^-1 C_kl>,
    C_ij = sum_t X_t phi_ti Z_tj^T,

and since pairs of lower orders come first, leading blocks of the Cholesky factor of G belong to
lower orders.  The first part of G is that of ``linearising.head_sums``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from polyattn.auditing.order_pairs import BLOCK_NUMBERS, HeadData
from polyattn.linearising.head_blocks import predictions
from polyattn.linearising.head_sums import HeadBlock, HeadSums
from polyattn.numerics.arrays import even_ranges
from polyattn.numerics.parallel import single_threaded_blas

Array = NDArray[np.float64]

# Added to the Gram matrix of features of size one, for each order: what a lower order explains as
# well, or what these data do not tell apart, is left to the lower order.
RIDGES = {"mean": 1e-12, "linear": 1e-11, "second": 1e-9}

# Groups of positions that are multiplied together.
TOGETHER = 256


@dataclass(frozen=True, eq=False)
class OrderFit:
    """The fit of one order: y_t ~ [1, w_t] W + phi_t M Z_t; own is W, mixing is M."""

    own: Array
    mixing: Array

    def __call__(self, block: HeadBlock, own: Array) -> Array:
        """Predictions (B, T, c)."""
        return own @ self.own + predictions(block, self.mixing)


@single_threaded_blas()
def fit_orders(data: HeadData) -> list[OrderFit]:
    """The fits of the orders token, mean, linear and second over all predicted positions.

    Guarantee: the error on these data is that of the best M and W of the order, up to rounding and
    a relative ridge of at most 1e-9; so it does not grow with the order.
    Cost: with K pairs, k coordinates and c outputs K^2 k c / 2 + K k c g multiplications, g the
    number of sequences (``full``, ``last``) or of positions (``causal``).
    """
    own, pairs = _OwnSums.of(data), data.pairs
    gram, moments = _sums(data)
    size = np.sqrt(np.maximum(np.diagonal(gram), np.finfo(np.float64).tiny))
    for some in _output_ranges(data, len(own.inverse)):
        crossed = _crossed(data, own.inverse, some)
        gram -= crossed @ crossed.T
        moments -= crossed @ own.whitened[:, some].ravel()
    gram /= size[:, None] * size
    gram[np.diag_indices_from(gram)] += np.repeat(list(RIDGES.values()), np.diff(pairs.prefixes))
    factor = cholesky(gram, lower=True, overwrite_a=True, check_finite=False)
    solved = solve_triangular(factor, moments / size, lower=True)
    rows, columns = pairs.indices
    fits = []
    for count in pairs.prefixes:
        mixing = np.zeros(pairs.sizes)
        if count:
            found = solve_triangular(factor[:count, :count], solved[:count], lower=True, trans="T")
            mixing[rows[:count], columns[:count]] = found / size[:count]
        fits.append(OrderFit(own.best(data, mixing), mixing))
    return fits


@dataclass(frozen=True, eq=False)
class _OwnSums:
    """For the map of the token itself: L^-1 with X^T X = L L^T where it is not zero, L^-1 X^T y."""

    inverse: Array
    whitened: Array

    @classmethod
    def of(cls, data: HeadData) -> _OwnSums:
        gram: Array = np.zeros(())
        moments: Array = np.zeros(())
        for block, own in data.parts():
            flat = own.reshape(-1, own.shape[2])
            gram = gram + flat.T @ flat
            moments = moments + flat.T @ block.targets.reshape(len(flat), -1)
        values, vectors = np.linalg.eigh(gram)
        kept = values > len(values) * np.finfo(np.float64).eps * values[-1]
        inverse = (vectors[:, kept] / np.sqrt(values[kept])).T
        return cls(inverse, inverse @ moments)

    def best(self, data: HeadData, mixing: Array) -> Array:
        """The best W beside M."""
        whitened = self.whitened
        if np.any(mixing):
            moments = np.zeros((self.inverse.shape[1], whitened.shape[1]))
            for block, own in data.parts():
                predicted = predictions(block, mixing)
                moments += np.einsum("btk,btc->kc", own, predicted, optimize=True)
            whitened = whitened - self.inverse @ moments
        return self.inverse.T @ whitened


def _sums(data: HeadData) -> tuple[Array, Array]:
    """sum_t phi_ti phi_tk Z_tj . Z_tl for all pairs (ij), (kl), and sum_t phi_ti Z_tj . y_t."""
    (rows, columns), (_, n_keys) = data.pairs.indices, data.pairs.sizes
    sums = HeadSums(*data.pairs.sizes, data.n_outputs)
    for block, _ in data.parts():
        sums.add(block)
    chosen = rows * n_keys + columns
    return sums.matrix()[np.ix_(chosen, chosen)], sums.cross[rows, columns]


def _crossed(data: HeadData, inverse: Array, some: slice) -> Array:
    """L^-1 C of all pairs (K, k' c') for some of the outputs, k' the rank of X."""
    (n_seen, n_own), width, blocks = inverse.shape, some.stop - some.start, data.pairs.blocks
    parts = [np.zeros((len(i) * n_own, len(j) * width)) for i, j in blocks]
    for products, rows in _products(data):
        n, seen = len(products), rows[:, :, some]
        for part, (i, j) in zip(parts, blocks, strict=True):
            left = products[:, i].reshape(n, len(i) * n_own)
            part += left.T @ seen[:, j].reshape(n, len(j) * width)
    found = []
    for part, (i, j) in zip(parts, blocks, strict=True):
        solved = inverse @ part.reshape(len(i), n_own, len(j) * width)
        by_pair = solved.reshape(len(i), n_seen, len(j), width).swapaxes(1, 2)
        found.append(by_pair.reshape(len(i) * len(j), n_seen * width))
    return np.concatenate(found)


def _products(data: HeadData) -> Iterator[tuple[Array, Array]]:
    """phi^T X (n, F, k + 1), summed over positions with the same rows, and these rows (n, G, c).

    Some hundred at a time, since every product with them goes through all of C.
    """
    held: list[tuple[Array, Array]] = []
    for block, own in data.parts():
        n = block.rows.shape[0] * block.rows.shape[1]
        phi, own = (each.reshape(n, -1, each.shape[2]) for each in (block.phi, own))
        held.append((phi.swapaxes(1, 2) @ own, block.rows.reshape(n, *block.rows.shape[2:])))
        if sum(len(rows) for _, rows in held) >= TOGETHER:
            yield _joined(held)
            held = []
    if held:
        yield _joined(held)


def _joined(held: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    products, rows = zip(*held, strict=True)
    return np.concatenate(products), np.concatenate(rows)


def _output_ranges(data: HeadData, n_own: int) -> Iterator[slice]:
    """Ranges of outputs whose C fit into memory together."""
    most = max(1, BLOCK_NUMBERS // (len(data.pairs) * n_own))
    return (slice(*each) for each in even_ranges(data.n_outputs, most))
