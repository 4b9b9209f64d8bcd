"""SoftmaxHeads: queries, keys, values and outputs of given softmax heads, sequence by sequence.

Logits are q_t . k_s with the scale shared equally by both sides.  A value enters in the coordinates
of the outputs: with W_O[h] = L E for a matrix E of orthonormal rows, the numbers u_s = v_s L
have the norms and inner products of the outputs v_s W_O[h], and there are no more of them than
numbers in a value.  Weights of softmax sum to one, so a constant that is added to all values comes
out as it is: the mean of the values over the tokens, and biases, are taken out before and are exact
in whatever replaces the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType
from polyattn.interop import Projections, to_projections
from polyattn.model import SoftmaxAttention
from polyattn.model.rotary import Turns
from polyattn.model.softmax import softmax
from polyattn.numerics.arrays import even_ranges

Array = NDArray[np.float64]

# Logits of one head that are in memory together.
BLOCK_LOGITS = 1 << 20


class SeenHead(NamedTuple):
    """One head on sequences (B, n, d): queries (B, T, r), keys (B, n, r) and values (B, n, c).

    T = 1 in mode ``last``, else n; values are in the coordinates of the outputs, their mean
    taken out.
    """

    queries: Array
    keys: Array
    values: Array


@dataclass(frozen=True, eq=False)
class SoftmaxHeads:
    """Given heads, ready to be seen.

    W_Q, W_K : (H, d, r), with half of the scale each; b_Q, b_K : (H, r)
    W_V : (H, d, v), without biases; W_O : (H, v, e)
    b_O : (e,), all that is added to the outputs whatever the weights are
    mode : "full" | "causal" | "last"
    stretch : what queries and keys were divided by, each: sqrt(scale)
    frequencies : (r/2,) of rotary positions, by which queries and keys are turned; or None
    """

    W_Q: Array
    W_K: Array
    b_Q: Array
    b_K: Array
    W_V: Array
    W_O: Array
    b_O: Array
    mode: str
    stretch: float
    frequencies: Array | None = None

    @classmethod
    def of(cls, attention: SoftmaxAttention | Projections) -> SoftmaxHeads:
        """From projections as they are, or from a layer, whose ``attn`` is factored by SVD."""
        if isinstance(attention, SoftmaxAttention):
            given = to_projections(attention)
        elif isinstance(attention, Projections):
            given = attention
        else:
            raise InvalidType(
                "attention must be a SoftmaxAttention or interop.Projections of softmax heads; "
                f"got {type(attention).__name__}."
            )
        if given.kind != "softmax":
            raise InvalidInput(
                f"attention must have softmax heads; got projections of kind {given.kind!r}, "
                "which are linear already."
            )
        H, _, r = given.W_Q.shape
        stretch = float(np.sqrt(given.scale))
        none = np.zeros((H, r))
        b_O = np.zeros(given.W_O.shape[2]) if given.b_O is None else given.b_O
        if given.b_V is not None:
            b_O = b_O + np.einsum("hv,hve->e", given.b_V, given.W_O)
        return cls(
            given.W_Q / stretch, given.W_K / stretch,
            none if given.b_Q is None else given.b_Q / stretch,
            none if given.b_K is None else given.b_K / stretch,
            given.W_V, given.W_O, b_O, given.mode, stretch, given.rotary,
        )  # fmt: skip

    @property
    def n_heads(self) -> int:
        """H."""
        return len(self.W_Q)

    @property
    def n_dims(self) -> int:
        """Coordinates of a token."""
        return self.W_Q.shape[1]

    @property
    def n_outputs(self) -> int:
        """e, the coordinates of an output."""
        return self.W_O.shape[2]

    def output_coordinates(self, head: int) -> tuple[Array, Array]:
        """L (v, c) and E (c, e) with W_O[head] = L E and E E^T = 1, c at most v and e."""
        E, L = np.linalg.qr(self.W_O[head].T)
        return L.T, E.T

    def see(self, X: Array, head: int, mean: Array, L: Array) -> SeenHead:
        """Queries, keys and values of a head on X (B, n, d); mean (d,) of tokens is taken out."""
        values = (X - mean) @ (self.W_V[head] @ L)
        first = X.shape[1] - 1 if self.mode == "last" else 0
        queries = X[:, first:] @ self.W_Q[head] + self.b_Q[head]
        keys = X @ self.W_K[head] + self.b_K[head]
        if self.frequencies is not None:
            turns = Turns.of(self.frequencies, X.shape[1])
            queries, keys = turns.last(queries.shape[1]).applied(queries), turns.applied(keys)
        return SeenHead(queries, keys, values)


def softmax_outputs(seen: SeenHead, mode: str) -> Array:
    """o_t (B, T, c): softmax attention, the target.  Cost: O(n^2 (r + c)) per sequence."""
    queries, keys, values = seen
    n_sequences, n_asking, _ = queries.shape
    outputs = np.empty((n_sequences, n_asking, values.shape[2]))
    at_once = max(1, BLOCK_LOGITS // (n_sequences * keys.shape[1]))
    for first, stop in even_ranges(n_asking, at_once):
        logits = queries[:, first:stop] @ keys.transpose(0, 2, 1)
        if mode == "causal":
            later = np.arange(keys.shape[1]) > np.arange(first, stop)[:, None]
            logits[:, later] = -np.inf
        outputs[:, first:stop] = softmax(logits) @ values
    return outputs
