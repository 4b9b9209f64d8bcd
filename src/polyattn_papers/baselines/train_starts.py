"""train_starts: linear attention of mode ``last`` trained by Adam from several starts at once.

Starts are ours, as in ``pa.data.random_layer``: A_h with entries N(0, 1/d^2), V_h with entries
N(0, 1/d), for small starts divided by the number of heads, so that heads are averaged.  Adam with
rate 0.01, which falls to zero by a cosine, so that what is left at the end is not the noise of
batches.  Only the last position is predicted, so a step needs the token Gram and the last token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from numpy.typing import NDArray
from torch import Tensor

from polyattn.model import LinearAttention
from polyattn_papers.baselines.threads import n_threads
from polyattn_papers.baselines.train import Limit, as_float32, cosine, draws, train


@dataclass(frozen=True)
class StartsSettings:
    """How layers are trained; starts share batches and nothing else."""

    n_heads: int
    n_starts: int
    n_steps: int
    small_start: bool = False
    seed: int = 0
    batch_size: int = 256
    learning_rate: float = 0.01


# Steps are small: more threads would wait for each other most of the time.
@n_threads(1)
def train_starts(X: NDArray, Y: NDArray, settings: StartsSettings) -> list[LinearAttention]:
    """One layer for each start, from X (N, n, d) and Y (N, e), in float32.

    The loss of the starts is summed and Adam works entry by entry, so that each start is trained
    as if it were alone.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    tokens, targets = as_float32(X), as_float32(Y)
    grams, queries = tokens.transpose(1, 2) @ tokens, tokens[:, -1]
    attn, value = _start(settings, X.shape[2], Y.shape[1], generator)

    def loss(batch: Tensor) -> Tensor:
        error = _forward(grams[batch], queries[batch], attn, value) - targets[batch]
        return error.square().sum(-1).mean(-1).sum()

    train(
        loss,
        torch.optim.Adam([attn, value], lr=settings.learning_rate),
        draws(len(X), settings.batch_size, generator),
        Limit(n_steps=settings.n_steps),
        cosine,
    )
    layers = zip(attn.detach().double().numpy(), value.detach().double().numpy(), strict=True)
    return [LinearAttention(A, V, mode="last") for A, V in layers]


def _start(
    settings: StartsSettings, n_dims: int, n_outputs: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Matrices attn (starts, H, d, d) and value (starts, H, d, e)."""
    shape = (settings.n_starts, settings.n_heads, n_dims)
    attn = torch.randn(*shape, n_dims, generator=generator) / n_dims
    value = torch.randn(*shape, n_outputs, generator=generator) / n_dims**0.5
    if settings.small_start:
        value /= settings.n_heads
    return attn.requires_grad_(), value.requires_grad_()


def _forward(grams: Tensor, queries: Tensor, attn: Tensor, value: Tensor) -> Tensor:
    """(B, d, d) and (B, d) -> (starts, B, e): sum over heads of V^T G A^T x."""
    keys = torch.einsum("bl,shlk->shbk", queries, attn)
    attended = torch.einsum("bjk,shbk->shbj", grams, keys)
    return torch.einsum("shbj,shja->sba", attended, value)
