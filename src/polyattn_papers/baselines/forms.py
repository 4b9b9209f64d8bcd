"""Three ways to compute causal linear attention; they agree up to rounding, gradients included.

    F(X)_t = sum_h sum_{s<=t} (x_t^T A_h x_s) V_h^T x_s = sum_h V_h^T G_t A_h^T x_t,

with G_t the Gram matrix of the tokens up to t.  X (B, n, d), attn (H, d, d), value (H, d, e);
outputs (B, n, e).  Per token and head scores cost n d, running Grams d^2; in the cubic features
all heads together cost d^3 e / 2, and the features of tokens that are not trained can be kept.

Which is fastest depends on the sizes.  Milliseconds of one step (forward and backward, best of
20) at n = 100 with batches of 32 on one core; Grams and features of the sequences were kept:

    d, H        4, 1    4, 16    8, 1    8, 16    16, 1    16, 2    16, 16
    scores      1.1     82       1.1     98       1.5      3.0      107
    Grams       0.46    4.9      0.82    2.2      2.2      2.2      3.9
    features    0.39    0.49     1.5     1.5      (too large to keep)

In a deeper layer nothing can be kept, and gradients go through the Grams: for one head, Grams
take 1.1, 2.5 and 38 ms at d = 4, 8, 16, scores 1.3, 1.2 and 1.5 ms.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

# From so many coordinates on, the scores of one head are faster than Grams made anew.
MANY_DIMS = 8


def linear_attention(X: Tensor, attn: Tensor, value: Tensor) -> Tensor:
    """The faster one of scores and running Grams, when nothing can be kept between steps."""
    if len(attn) == 1 and X.shape[2] >= MANY_DIMS:
        return by_scores(X, attn, value)
    return by_grams(running_grams(X), X, attn, value)


def fastest_kept(n_dims: int, n_heads: int) -> str:
    """The fastest form for sequences that are seen again: ``features``, ``grams``, ``scores``."""
    if n_dims**2 <= MANY_DIMS * n_heads:
        return "features"
    return "scores" if n_heads == 1 and n_dims > MANY_DIMS else "grams"


def by_scores(X: Tensor, attn: Tensor, value: Tensor) -> Tensor:
    """By the masked n x n scores of the definition."""
    tokens = X[:, None]
    scores = torch.tril(tokens @ attn @ tokens.transpose(-1, -2))
    return (scores @ (tokens @ value)).sum(1)


def by_grams(grams: Tensor, X: Tensor, attn: Tensor, value: Tensor) -> Tensor:
    """By running Grams (B, n, d, d): linear in n."""
    queries = torch.einsum("btl,hlk->btkh", X, attn)
    return torch.einsum("btjh,hje->bte", grams @ queries, value)


def running_grams(X: Tensor) -> Tensor:
    """G_t = sum of x_s x_s^T over s <= t, (B, n, d, d)."""
    return (X[..., :, None] * X[..., None, :]).cumsum(1)


def by_features(features: Tensor, attn: Tensor, value: Tensor) -> Tensor:
    """By cubic features (B, n, p): all heads together are one matrix, P[a, (j<=k), l]."""
    tensor = torch.einsum("hje,hlk->ejkl", value, attn)
    rows, columns = _pairs(attn.shape[1])
    both = (tensor + tensor.transpose(1, 2))[:, rows, columns]
    return features @ both.flatten(1).T


def cubic_features(X: Tensor) -> Tensor:
    """psi[(j<=k), l] = G_t[j,k] x_t[l], (B, n, p), halved where j = k.

    The halves make up for adding both orders of a pair that has only one, once instead of at
    every step.
    """
    rows, columns = _pairs(X.shape[2])
    halves = torch.where(rows == columns, 0.5, 1.0).to(X.dtype)
    pairs = (X[..., rows] * X[..., columns] * halves).cumsum(1)
    return (pairs[..., None] * X[..., None, :]).flatten(2)


@cache
def _pairs(n_dims: int) -> tuple[Tensor, Tensor]:
    """The index of pairs j <= k, kept since small steps would feel it."""
    rows, columns = torch.triu_indices(n_dims, n_dims)
    return rows, columns
