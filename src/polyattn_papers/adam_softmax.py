"""The gradient baseline for softmax attention: all heads trained together by Adam.

Rate with cosine decay over the given time, minibatches, float32, entries of attn started at
0.3/d and of value at 0.5/sqrt(d): settings that serve the random instances well.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import missing_extra
from polyattn.model import SoftmaxAttention

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise missing_extra("torch", "torch") from None

BATCH, LEAST_RATE = 256, 1e-4


def train_softmax(
    X: NDArray,
    Y: NDArray,
    n_heads: int,
    seconds: float,
    learning_rate: float = 1e-2,
    seed: int = 0,
) -> SoftmaxAttention:
    """The layer (mode ``full``) that Adam reaches from a random start in ``seconds``.

    X (N, n, d), Y (N, n, e); one thread.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens, targets = (torch.tensor(array, dtype=torch.float32) for array in (X, Y))
    d, e = X.shape[2], Y.shape[2]
    attn = (0.3 / d * torch.randn(n_heads, d, d, generator=generator)).requires_grad_()
    value = (0.5 / d**0.5 * torch.randn(n_heads, d, e, generator=generator)).requires_grad_()
    optimiser = torch.optim.Adam([attn, value], lr=learning_rate)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        start = time.perf_counter()
        while (share := (time.perf_counter() - start) / seconds) < 1:
            decay = 0.5 * (1 + np.cos(np.pi * share)) + LEAST_RATE
            optimiser.param_groups[0]["lr"] = learning_rate * decay
            batch = torch.randint(0, len(X), (min(BATCH, len(X)),), generator=generator)
            optimiser.zero_grad()
            loss = (_forward(tokens[batch], attn, value) - targets[batch]).square().mean()
            loss.backward()
            optimiser.step()
    finally:
        torch.set_num_threads(threads)
    return SoftmaxAttention(attn.detach().double().numpy(), value.detach().double().numpy())


def _forward(X: Tensor, attn: Tensor, value: Tensor) -> Tensor:
    """(B, n, d) -> (B, n, e)."""
    tokens = X[:, None]
    weights = torch.softmax(tokens @ attn @ tokens.transpose(-1, -2), dim=-1)
    return (weights @ tokens @ value).sum(1)
