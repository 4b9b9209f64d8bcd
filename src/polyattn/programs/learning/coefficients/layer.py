"""A layer on active pairs: its coefficients as one matrix per coordinate of the last token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.features.pairs import n_pairs, pair_position
from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.learning.cautious import float_tokens
from polyattn.programs.learning.coefficients.features import ActivePairs


@dataclass(frozen=True, eq=False)
class ActiveLayer:
    """y_a = sum over l, (jk) of matrices[l, a, (jk)] G[j,k] x[l], over active pairs alone.

    Parameters
    ----------
    active : ActivePairs
    matrices : array (d, e, u)
        The coefficients P[a, (jk), l]; pairs that never occurred have coefficient zero, which
        is what the minimum of ||T|| gives them.
    """

    active: ActivePairs
    matrices: NDArray[np.float64]

    def step(self, entries: NDArray, query: NDArray) -> NDArray[np.float64]:
        """One output (e,) from the active entries (u,) of G and the last token (d,).

        Cost: 2 e u flops per coordinate that the last token holds.
        """
        result = np.zeros(self.matrices.shape[1])
        for held in np.flatnonzero(query):
            result += query[held] * (self.matrices[held] @ entries)
        return result

    def outputs(self, pairs: NDArray, queries: NDArray) -> NDArray[np.float64]:
        """Outputs (m, e) from active entries (m, u) and last tokens (m, d).

        Cost: 2 e u flops for each coordinate that a last token holds.
        """
        result = np.zeros((len(queries), self.matrices.shape[1]))
        for coordinate in np.flatnonzero(queries.any(axis=0)):
            rows = np.flatnonzero(queries[:, coordinate])
            scaled = pairs[rows] * queries[rows, coordinate, None]
            result[rows] += scaled @ self.matrices[coordinate].T
        return result

    def predict(self, grams: NDArray, queries: NDArray) -> NDArray[np.float64]:
        """Outputs (m, e) from Gram matrices (m, d, d) and last tokens (m, d)."""
        return self.outputs(self.active.of_grams(grams), queries)

    @property
    def coef(self) -> NDArray[np.float64]:
        """The folded coefficients (e, q, d), as ``LinearAttention.coef``."""
        n_dims, n_outputs, _ = self.matrices.shape
        coef = np.zeros((n_outputs, n_pairs(n_dims), n_dims))
        places = pair_position(n_dims)[self.active.first, self.active.second]
        coef[:, places] = self.matrices.transpose(1, 2, 0)
        return coef


def combine(
    active: ActivePairs, pairs: NDArray, queries: NDArray, alpha: NDArray
) -> NDArray[np.float64]:
    """The matrices (d, e, u) of T = sum_i alpha_i phi_i, features in the norm of T.

    Cost: 2 e u flops for each coordinate that a last token holds.
    """
    n_dims, n_outputs = queries.shape[1], alpha.shape[1]
    matrices = np.zeros((n_dims, n_outputs, len(active)))
    for coordinate in np.flatnonzero(queries.any(axis=0)):
        rows = np.flatnonzero(queries[:, coordinate])
        weights = alpha[rows] * queries[rows, coordinate, None]
        matrices[coordinate] = weights.T @ pairs[rows]
    # <phi_i, phi> = sum over pairs of multiplicity G_i G: the weight goes to the coefficient.
    matrices *= active.multiplicity
    return matrices


# The predictor of a layer with any coefficients: the Gram matrix on active pairs, updated.


class DensePredictor:
    """Predicts the next token of one history by the coefficients of a layer.

    Cost: u numbers to update and 2 d u flops for each coordinate that the last token holds, with
    u active pairs.
    """

    def __init__(self, schema: Schema, layer: ActiveLayer) -> None:
        self._schema, self._layer = schema, layer
        self._entries = np.zeros(len(layer.active))
        self._last = np.zeros(schema.n_dims)

    def start(self, prompt: list[Token]) -> None:
        """Begin with the tokens of a prompt."""
        tokens = float_tokens(self._schema, prompt)
        active = self._layer.active
        self._entries = np.sum(tokens[:, active.first] * tokens[:, active.second], axis=0)
        self._last = tokens[-1]

    def output(self) -> NDArray[np.float64]:
        """The layer's output (d,) after the last token, before rounding."""
        return self._layer.step(self._entries, self._last)

    def next_token(self) -> Token:
        """The token that comes next, rounded; it is appended."""
        rounded = self._schema.round(self.output())
        self._last = rounded.astype(np.float64)
        active = self._layer.active
        self._entries += self._last[active.first] * self._last[active.second]
        return self._schema.decode(rounded)
