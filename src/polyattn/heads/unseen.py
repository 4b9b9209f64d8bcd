"""Directions of coefficients that change no output, whatever the sequences are.

Some forms see one number more than once.  Where a token attends to itself alone (a window of one
token, lag 0), query, key and value are of one token, and v_c k_b q_l is the same product in every
order; matrices and functions of tokens depend on one another; a mean leaves constants as they are.
Of all coefficients of one function those are then looked for that need the fewest heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular

from polyattn.features.products import features
from polyattn.features.summaries import SeenSequences
from polyattn.form.layout import Layout
from polyattn.heads.data_scale import CoordinateUnits
from polyattn.heads.tensor_layout import TensorLayout
from polyattn.model.compare import random_sequences

# So many features are compared on random sequences; of more, nothing is known.
MOST_FEATURES = 1000
# Features, at equal sizes, that differ by less than this from a sum of others are that sum.
SAME = 1e-11
# Entries of a direction below this part are rounding.
ROUNDING = 1e-9


class Identities(NamedTuple):
    """Coefficients that compute zero.

    by_scale : for each scale an array (q r + n, k): of its q r products, then of n linear terms
    complete : whether no others are possible, such as those that need several scales
    """

    by_scale: tuple[NDArray[np.float64], ...]
    complete: bool


@dataclass(frozen=True)
class Unseen:
    """What of a tensor (J e, n_values, n_keys, r) changes no output, in the units of a target.

    bases : for each scale orthonormal columns (n_values n_keys r, k)
    linear_terms : for each scale what linear terms (k, n) such a direction is, but for the sign
    complete : as for ``Identities``
    """

    bases: tuple[NDArray[np.float64], ...]
    linear_terms: tuple[NDArray[np.float64], ...]
    complete: bool

    @classmethod
    def of(cls, order: TensorLayout, units: CoordinateUnits) -> Unseen | None:
        """None where every direction is seen."""
        known = identities(order.layout)
        if known is None:
            return None
        pairs = order.layout.pairs
        n_products = len(pairs) * order.n_queries
        n_entries = pairs.n_values * pairs.n_keys * order.n_queries
        bases, terms = [], []
        for scale, found in enumerate(known.by_scale):
            count = found.shape[1]
            products = np.zeros((count, order.n_scales, n_products))
            products[:, scale] = found[:n_products].T
            products = products.reshape(count, order.layout.n_products, order.n_queries)
            tensors = order.tensor(np.ldexp(products, units.features))
            own = tensors.reshape(order.n_scales, count, n_entries)[scale]
            sizes = np.linalg.norm(own, axis=1, keepdims=True)
            sizes[sizes == 0.0] = 1.0
            left, sigma, right = np.linalg.svd((own / sizes).T, full_matrices=False)
            kept = sigma > SAME
            bases.append(left[:, kept])
            weights = right[kept] / sigma[kept, None]
            terms.append(weights @ (found[n_products:].T / sizes))
        return cls(tuple(bases), tuple(terms), known.complete)

    def visible(self, tensor: NDArray) -> NDArray[np.float64]:
        """The tensor without the directions that change no output."""
        parts = tensor.reshape(len(self.bases), -1, len(self.bases[0]))
        pairs = zip(parts, self.bases, strict=True)
        return np.reshape([part - part @ basis @ basis.T for part, basis in pairs], tensor.shape)

    def linear(self, tensor: NDArray) -> NDArray[np.float64]:
        """Linear terms (e, n) that with the unseen part of the tensor compute zero."""
        parts = tensor.reshape(len(self.bases), -1, len(self.bases[0]))
        both = zip(parts, self.bases, self.linear_terms, strict=True)
        return np.asarray(sum(part @ basis @ terms for part, basis, terms in both))


@lru_cache(maxsize=32)
def identities(layout: Layout) -> Identities | None:
    """The identities between the features of a layout; None where there can be none.

    Guarantee: with probability one, where maps are analytic.  Cost: O(p^3) for p features.
    """
    if not _may_depend(layout):
        return None
    n_products, n_features = layout.n_products * len(layout.query), layout.n_features
    own = n_products // layout.n_scales
    n_linear = n_features - n_products
    none = np.zeros((own + n_linear, 0))
    if own + n_linear > MOST_FEATURES or not _are_defined_everywhere(layout):
        return Identities((none,) * layout.n_scales, False)
    whole = n_features <= MOST_FEATURES
    rows = _feature_rows(layout, n_features if whole else own + n_linear)
    linear = rows[:, n_products:]
    blocks = [rows[:, j * own : (j + 1) * own] for j in range(layout.n_scales)]
    found = tuple(_null_space(np.hstack([block, linear])) for block in blocks)
    among_linear = _null_space(linear).shape[1]
    count = sum(each.shape[1] - among_linear for each in found) + among_linear
    complete = layout.n_scales == 1 or (whole and _null_space(rows).shape[1] == count)
    return Identities(found, complete)


def _may_depend(layout: Layout) -> bool:
    """Whether features can depend on one another; coordinates of other tokens do not."""
    form = layout.form
    if layout.columns.maps or layout.pair_columns.maps:
        return True
    if form.mean and form.bias and layout.has_constant:
        return True
    # Without other tokens than the query itself, or with more decays than there are tokens.
    nearest = 1 if layout.n_context_dims is None else 0
    fewest = 1 if form.lags is not None else layout.n_scales
    ends = [(scale.stop, max(scale.start, nearest)) for scale in form.scales]
    return any(stop is not None and stop - start < fewest for stop, start in ends)


def _are_defined_everywhere(layout: Layout) -> bool:
    """Whether random tokens may be given to all maps: not to functions of one's own."""
    maps = (*layout.columns.maps, *layout.pair_columns.maps)
    return all(isinstance(given, np.ndarray) or hasattr(given, "to_dict") for _, given, _ in maps)


def _feature_rows(layout: Layout, n_features: int) -> NDArray[np.float64]:
    """Features (rows, p) of the last positions of random sequences, more rows than features."""
    X, context = random_sequences(layout, n_features + 20)
    last = X.offsets[1:] - 1 if layout.form.mode != "last" else np.arange(len(X))
    parts = []
    for block in SeenSequences(layout, X, context).blocks():
        at = last[(last >= block.first) & (last < block.stop)] - block.first
        parts.append(features(layout, block.sums[:, at], block.queries[:, at]))
    return np.concatenate(parts, axis=1).T


def _null_space(columns: NDArray) -> NDArray[np.float64]:
    """Sums of columns (rows, p) that are zero: (p, k), each with few entries."""
    sizes = np.linalg.norm(columns, axis=0)
    sizes[sizes == 0.0] = 1.0
    triangle, order = qr(columns / sizes, mode="r", pivoting=True)
    diagonal = np.abs(np.diag(triangle))
    rank = int(np.count_nonzero(diagonal > SAME * diagonal.max(initial=0.0)))
    found = np.zeros((columns.shape[1], columns.shape[1] - rank))
    found[order[rank:]] = np.eye(found.shape[1])
    sums = solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])
    found[order[:rank]] = np.where(np.abs(sums) > ROUNDING, -sums, 0.0)
    return found / sizes[:, None]
