"""train_softmax: all heads of a softmax layer trained together by Adam.

Rate with cosine decay over the limit, minibatches, float32, entries of attn started at 0.3/d and
of value at 0.5/sqrt(d): settings that serve the random instances well.
"""

from __future__ import annotations

import torch
from numpy.typing import NDArray
from torch import Tensor

from polyattn.model import SoftmaxAttention
from polyattn_papers.baselines.threads import n_threads
from polyattn_papers.baselines.train import Limit, as_float32, cosine, draws, train

BATCH, LEAST_RATE = 256, 1e-4


@n_threads(1)
def train_softmax(
    X: NDArray, Y: NDArray, n_heads: int, limit: Limit, learning_rate: float = 1e-2, seed: int = 0
) -> SoftmaxAttention:
    """The layer (mode ``full``) that Adam reaches from a random start within the limit.

    X (N, n, d), Y (N, n, e); one thread.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens, targets = as_float32(X), as_float32(Y)
    d, e = X.shape[2], Y.shape[2]
    attn = (0.3 / d * torch.randn(n_heads, d, d, generator=generator)).requires_grad_()
    value = (0.5 / d**0.5 * torch.randn(n_heads, d, e, generator=generator)).requires_grad_()
    train(
        lambda batch: (_forward(tokens[batch], attn, value) - targets[batch]).square().mean(),
        torch.optim.Adam([attn, value], lr=learning_rate),
        draws(len(X), min(BATCH, len(X)), generator),
        limit,
        lambda step, share: cosine(step, share) + LEAST_RATE,
    )
    return SoftmaxAttention(attn.detach().double().numpy(), value.detach().double().numpy())


def _forward(X: Tensor, attn: Tensor, value: Tensor) -> Tensor:
    """(B, n, d) -> (B, n, e)."""
    tokens = X[:, None]
    weights = torch.softmax(tokens @ attn @ tokens.transpose(-1, -2), dim=-1)
    return (weights @ tokens @ value).sum(1)
