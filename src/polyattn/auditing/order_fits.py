"""Least-squares fits of nested orders to the outputs of one softmax head, from sums over tokens.

At a predicted position t with whitened token w_t, query features phi_t and sums S_t over the n_t
tokens that t attends to, an order is a set of pairs (i, j) that M may use:

    y_t  ~  [1, w_t] W  +  phi_t M S_t,        S_t = (1 / n_t) sum_s psi_s v_s^T.

    token       no pairs: a linear map of the token itself
    mean        (1, 1) alone: the mean of the values
    linear      queries [1, a] and keys [1, b]: linear attention
    second      and products of two leading coordinates of queries and of keys

All are solved by one factor.  W is eliminated, X = [1, w]:

    G_(ij)(kl) = sum_t phi_ti phi_tk S_tj . S_tl - <C_ij, (X^T X)^-1 C_kl>,
    C_ij = sum_t X_t phi_ti S_tj^T,

and since pairs of lower orders come first, leading blocks of the Cholesky factor of G belong to
lower orders.  Positions with the same S (all those of a sequence, in mode ``full``) are a group,
whose sums over phi are formed first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from polyattn.auditing.head_groups import BLOCK_NUMBERS, Groups, HeadData
from polyattn.numerics.arrays import even_ranges
from polyattn.numerics.parallel import single_threaded_blas

Array = NDArray[np.float64]

ORDERS = ("token", "mean", "linear", "second")

# Added to the Gram matrix of features of size one, for each order: what a lower order explains as
# well, or what these data do not tell apart, is left to the lower order.
RIDGES = {"mean": 1e-12, "linear": 1e-11, "second": 1e-9}


@dataclass(frozen=True, eq=False)
class OrderFit:
    """The fit of one order: y_t ~ [1, w_t] W + phi_t M S_t; own is W, attended is M (p, p')."""

    own: Array
    attended: Array

    def __call__(self, groups: Groups) -> Array:
        """Predictions (g, q, c)."""
        return groups.own @ self.own + (groups.queries @ self.attended) @ groups.sums


@single_threaded_blas()
def fit_orders(data: HeadData) -> list[OrderFit]:
    """One fit for each of ``ORDERS`` by least squares over all predicted positions.

    Guarantee: the error on these data is that of the best M and W of the order, up to rounding and
    a relative ridge of at most 1e-9; so it does not grow with the order.
    Cost: with K pairs, k coordinates and c outputs K^2 k c / 2 + K k c g multiplications for g
    groups, as many as there are sequences (``full``, ``last``) or positions (``causal``).
    """
    own, pairs = _OwnSums.of(data), data.pairs
    gram, moments = _sums(data)
    size = np.sqrt(np.maximum(np.diagonal(gram), np.finfo(np.float64).tiny))
    for some in _output_ranges(data):
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
        attended = np.zeros(pairs.sizes)
        if count:
            found = solve_triangular(factor[:count, :count], solved[:count], lower=True, trans="T")
            attended[rows[:count], columns[:count]] = found / size[:count]
        fits.append(OrderFit(own.best(data, attended), attended))
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
        for each in data.groups():
            own = each.own.reshape(-1, each.own.shape[2])
            gram = gram + own.T @ own
            moments = moments + own.T @ each.outputs.reshape(len(own), -1)
        values, vectors = np.linalg.eigh(gram)
        kept = values > len(values) * np.finfo(np.float64).eps * values[-1]
        inverse = (vectors[:, kept] / np.sqrt(values[kept])).T
        return cls(inverse, inverse @ moments)

    def best(self, data: HeadData, attended: Array) -> Array:
        """The best W beside M."""
        whitened = self.whitened
        if np.any(attended):
            moments = np.zeros((self.inverse.shape[1], whitened.shape[1]))
            for each in data.groups():
                predicted = (each.queries @ attended) @ each.sums
                moments += np.einsum("gqk,gqc->kc", each.own, predicted, optimize=True)
            whitened = whitened - self.inverse @ moments
        return self.inverse.T @ whitened


def _sums(data: HeadData) -> tuple[Array, Array]:
    """sum_t phi_ti phi_tk S_tj . S_tl for all pairs (ij), (kl), and sum_t phi_ti S_tj . y_t."""
    (rows, columns), (p, p_keys) = data.pairs.indices, data.pairs.sizes
    both, moments = np.zeros((p * p, p_keys * p_keys)), np.zeros((p, p_keys))
    for each in data.groups():
        transposed = each.queries.swapaxes(1, 2)
        squares = (transposed @ each.queries).reshape(-1, p * p)
        both += squares.T @ (each.sums @ each.sums.swapaxes(1, 2)).reshape(-1, p_keys * p_keys)
        moments += np.einsum("gpc,gkc->pk", transposed @ each.outputs, each.sums, optimize=True)
    shaped = both.reshape(p, p, p_keys, p_keys)
    return shaped[rows[:, None], rows, columns[:, None], columns], moments[rows, columns]


def _crossed(data: HeadData, inverse: Array, some: slice) -> Array:
    """L^-1 C of all pairs (K, k' c') for some of the outputs, k' the rank of X."""
    (n_seen, n_own), width, blocks = inverse.shape, some.stop - some.start, data.pairs.blocks
    parts = [np.zeros((len(i) * n_own, len(j) * width)) for i, j in blocks]
    for each in data.groups():
        products = each.queries.swapaxes(1, 2) @ each.own  # (g, p, k + 1)
        sums = each.sums[:, :, some]
        for part, (i, j) in zip(parts, blocks, strict=True):
            left = products[:, i].reshape(len(products), len(i) * n_own)
            part += left.T @ sums[:, j].reshape(len(sums), len(j) * width)
    found = []
    for part, (i, j) in zip(parts, blocks, strict=True):
        solved = inverse @ part.reshape(len(i), n_own, len(j) * width)
        by_pair = solved.reshape(len(i), n_seen, len(j), width).swapaxes(1, 2)
        found.append(by_pair.reshape(len(i) * len(j), n_seen * width))
    return np.concatenate(found)


def _output_ranges(data: HeadData) -> Iterator[slice]:
    """Ranges of outputs whose C fit into memory together."""
    each = len(data.pairs) * (len(data.features.queries) + 1)
    most = max(1, BLOCK_NUMBERS // each)
    return (slice(*each) for each in even_ranges(len(data.features.outputs), most))
