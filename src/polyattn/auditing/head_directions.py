"""HeadDirections: queries, keys and values of a softmax head in directions that its logits give.

With tokens x (rows, the constant of ``bias`` appended) of mean mu over the data, the logits of a
head are, up to what only the query sees and softmax does not,

    x_t A x_s^T  =  beta . w_s  +  sum_i sigma_i a_i(t) b_i(s),        a = w U,  b = w V,

where w are the whitened tokens, x - mu = w E, and E A E^T = U diag(sigma) V^T, beta = E A^T mu^T.
Queries are the a_i, of unit variance.  Keys are the eigenvectors of the second moment of what
multiplies w_s, N = beta beta^T + V diag(sigma^2) V^T: the first directions are those that carry
most of the logits.  None of this depends on units, or on how A is written as a product.
With rotary positions the same is done for turned queries and keys, x_t W_Q R_t and x_s W_K R_s,
whitened each by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.linearising.softmax_heads import SeenHead
from polyattn.model import SoftmaxAttention
from polyattn.model.rotary import RotaryHeads

Array = NDArray[np.float64]

# Coordinates that differ by less than this beside their mean are constant.
CONSTANT = 1e-13

# Directions whose part of the spread of tokens, or of logits, is smaller are rounding.
NEGLIGIBLE = 1e-12

# A head whose logits have more directions is seen through so many of them.
MOST_DIRECTIONS = 64

# Products of two coordinates are taken of so many leading directions of queries, and one more of
# keys, whose mean direction is one of them.
SECOND_DIRECTIONS = 5


@dataclass(frozen=True, eq=False)
class TokenWhitening:
    """Tokens x (..., D) -> w (..., k), uncorrelated and of unit variance on the data.

    mean : array (D,)
    inward : array (D, k), w = (x - mean) inward
    outward : array (k, D), x - mean = w outward, where x varies on the data
    """

    mean: Array
    inward: Array
    outward: Array

    @classmethod
    def of(cls, tokens: Array) -> TokenWhitening:
        """That of tokens (rows, D); directions in which they do not differ are left out."""
        mean = tokens.mean(axis=0)
        centred = tokens - mean
        size = np.abs(centred).max(axis=0)
        # What differs by rounding alone is constant.
        varies = size > CONSTANT * np.abs(mean)
        unit = np.where(varies, size, 1.0)
        centred = np.where(varies, centred / unit, 0.0)
        squares, directions = np.linalg.eigh(centred.T @ centred / len(tokens))
        kept = np.flatnonzero(squares > NEGLIGIBLE * squares[-1])[::-1]
        directions, spread = directions[:, kept], np.sqrt(squares[kept])
        return cls(mean, directions / spread / unit[:, None], (directions * spread).T * unit)

    def __call__(self, tokens: Array) -> Array:
        """Whitened tokens (..., k)."""
        return (tokens - self.mean) @ self.inward


@dataclass(frozen=True, eq=False)
class Turned:
    """One head with rotary positions, and how its turned queries and keys are whitened."""

    head: RotaryHeads
    queries: TokenWhitening
    keys: TokenWhitening


@dataclass(frozen=True, eq=False)
class HeadDirections:
    """What a polynomial of queries and keys is made of, for one head.

    queries : array (k, r), from whitened tokens, or turned queries, to coordinates of a query
    keys : array (k, r'), the same for keys
    values : array (k, c), whitened tokens to values in c orthonormal directions of the outputs
    outputs : array (c, e), those directions
    logit_size : standard deviation of the logits over queries and keys that were drawn at random
    logit_share : the share of their variance in the leading directions
    turned : of a head with rotary positions
    """

    queries: Array
    keys: Array
    values: Array
    outputs: Array
    logit_size: float
    logit_share: float
    turned: Turned | None = None

    @classmethod
    def of(
        cls, layer: SoftmaxAttention, head: int, whitening: TokenWhitening, blocks: list[Array]
    ) -> HeadDirections:
        """Of a head of a layer, on tokens by length (B, n, D), with the constant of ``bias``."""
        turned = None
        if layer.rotary_heads is None:
            attn = layer.attn[head]
            logits = whitening.outward @ attn @ whitening.outward.T
            offset = whitening.outward @ (whitening.mean @ attn)
        else:
            turned = _turned(layer.rotary_heads, head, blocks)
            logits = turned.queries.outward @ turned.keys.outward.T
            offset = turned.keys.outward @ turned.queries.mean
        values, outputs = _values(whitening.outward @ layer.value[head])
        queries, keys, size, share = _directions(logits, offset)
        return cls(queries, keys, values, outputs, size, share, turned)

    def see(self, whitened: Array, tokens: Array, mode: str) -> SeenHead:
        """Coordinates of queries, keys and values of whitened tokens (B, n, k)."""
        first = whitened.shape[1] - 1 if mode == "last" else 0
        values = whitened @ self.values
        if self.turned is None:
            return SeenHead(whitened[:, first:] @ self.queries, whitened @ self.keys, values)
        ((queries, keys),) = self.turned.head.projected(tokens, first)
        return SeenHead(
            self.turned.queries(queries) @ self.queries, self.turned.keys(keys) @ self.keys, values
        )


def _turned(heads: RotaryHeads, head: int, blocks: list[Array]) -> Turned:
    one = slice(head, head + 1)
    alone = RotaryHeads(heads.query[one], heads.key[one], heads.frequencies)
    pairs = [pair for tokens in blocks for pair in alone.projected(tokens, 0)]
    queries, keys = (
        np.concatenate([each.reshape(-1, each.shape[2]) for each in side])
        for side in zip(*pairs, strict=True)
    )
    return Turned(alone, TokenWhitening.of(queries), TokenWhitening.of(keys))


def _directions(logits: Array, offset: Array) -> tuple[Array, Array, float, float]:
    """Directions of whitened queries (k, r) and keys (k', r'), leading ones first.

    Then the size of the logits, and the share of their variance in the leading directions.
    """
    left, sigma, right = np.linalg.svd(logits, full_matrices=False)
    total = float(np.sum(sigma**2) + offset @ offset)
    rank = min(int(np.count_nonzero(sigma**2 > NEGLIGIBLE * total)), MOST_DIRECTIONS)
    # What multiplies a whitened key, one column for the constant and each query direction.
    loads = np.column_stack([offset, right[:rank].T * sigma[:rank]])
    keys, sizes, _ = np.linalg.svd(loads, full_matrices=False)
    keys = keys[:, sizes**2 > NEGLIGIBLE * total]
    leading = keys[:, : SECOND_DIRECTIONS + 1].T @ loads[:, : SECOND_DIRECTIONS + 1]
    share = float(np.sum(leading**2)) / total if total > 0.0 else 1.0
    return left[:, :rank], keys, float(np.sqrt(total)), share


def _values(carried: Array) -> tuple[Array, Array]:
    """A matrix (k, e) as (k, c) times (c, e), the second of orthonormal rows; c is at least 1."""
    if not np.any(carried):
        return np.zeros((len(carried), 1)), np.eye(1, carried.shape[1])
    inner, scale, outer = np.linalg.svd(carried, full_matrices=False)
    seen = scale > np.sqrt(NEGLIGIBLE) * scale[0]
    return inner[:, seen] * scale[seen], outer[seen]
