"""Feature maps of queries and keys, as data: what linear attention sees in the place of exp(q.k).

A head sees its queries through one function and its keys through another.  Every function is one
of a few kinds with a matrix P (r, m) of the head, so that a map is arrays, stands in files, and is
computed by torch in the same way:

    linear       [1, x P]
    quadratic    [1, x, (x P)_i (x P)_j for i <= j, times 1/sqrt(2) where i = j]
    softmax      exp(x P) divided by its sum over the features
    exponential  exp(x P)
    gaussian     exp(x P - ||x||^2 / 2)
    elu          elu(x P) + 1
    callable     a function of arrays (..., r) -> (..., F)

The middle ones are positive and can be given as logarithms, which do not overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.form.pairs import n_pairs, pair_index

Array = NDArray[np.float64]

KINDS = ("linear", "quadratic", "softmax", "exponential", "gaussian", "elu", "callable")
POSITIVE = ("softmax", "exponential", "gaussian", "elu")


@dataclass(frozen=True, eq=False)
class SideMap:
    """What all heads see of their queries, or of their keys.

    kind : one of ``KINDS``
    matrix : array (H, r, m), one P for each head; of a callable (H, r, 0)
    function : of kind ``callable``, from (..., r) to (..., F)
    """

    kind: str
    matrix: Array
    function: Callable[[Array], Array] | None = None

    @property
    def positive(self) -> bool:
        """Whether all features are above zero and known by their logarithms."""
        return self.kind in POSITIVE

    def n_features(self) -> int:
        """F, the number of features."""
        _, r, m = self.matrix.shape
        if self.kind == "linear":
            return 1 + m
        if self.kind == "quadratic":
            return 1 + r + n_pairs(m)
        return m if self.function is None else self.features(np.zeros((1, r)), 0).shape[-1]

    def features(self, x: Array, head: int) -> Array:
        """Features (..., F) of queries or keys x (..., r) of this head."""
        if self.positive:
            return np.exp(self.logs(x, head))
        if self.function is not None:
            return _checked(self.function(x), x)
        P, one = self.matrix[head], np.ones((*x.shape[:-1], 1))
        if self.kind == "linear":
            return np.concatenate([one, x @ P], axis=-1)
        i, j = pair_index(P.shape[1])
        seen = x @ P
        products = seen[..., i] * seen[..., j] * np.where(i == j, np.sqrt(0.5), 1.0)
        return np.concatenate([one, x, products], axis=-1)

    def logs(self, x: Array, head: int) -> Array:
        """Logarithms (..., F) of positive features."""
        logits = x @ self.matrix[head]
        if self.kind == "softmax":
            logits -= logits.max(axis=-1, keepdims=True)
            logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        elif self.kind == "gaussian":
            logits -= 0.5 * np.sum(x * x, axis=-1, keepdims=True)
        elif self.kind == "elu":
            logits = np.where(logits > 0.0, np.log1p(np.maximum(logits, 0.0)), logits)
        return logits

    def some(self, heads: list[int]) -> SideMap:
        """The map of these heads alone."""
        return SideMap(self.kind, self.matrix[heads], self.function)


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """A map of queries and one of keys, and the name by which it was asked for."""

    name: str
    query: SideMap
    key: SideMap

    @property
    def shape(self) -> tuple[int, int]:
        """How many features a query and a key have."""
        return self.query.n_features(), self.key.n_features()


def _checked(found: object, x: Array) -> Array:
    """What a function of one's own made of x, if there are finite features for each of them."""
    features = np.asarray(found, dtype=np.float64)
    if features.shape[:-1] != x.shape[:-1] or features.ndim != x.ndim or not features.size:
        raise InvalidInput(
            "a function in maps must return features (..., F) for queries or keys (..., r): for "
            f"{x.shape} it returned {features.shape}."
        )
    if not np.isfinite(features).all():
        raise InvalidInput("a function in maps must return finite features; some are not.")
    return features
