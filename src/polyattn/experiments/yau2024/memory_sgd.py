"""Layers trained by Adam on associative memory, several random starts at once.

Starts as in the paper's experiments [yau2024: section 4.1]: entries of Q_h and V_h are N(0, 1/d)
and scores are divided by sqrt(d); heads are added up, or averaged as in those experiments, which
makes a start with H heads H times smaller.  Adam with rate 0.01, which falls to zero by a cosine,
so that what is left at the end is not the noise of batches.  Only the last position is asked for,
so a step needs the token Gram and the last token alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from numpy.typing import NDArray
from torch import Tensor

from polyattn.model import LinearAttention


@dataclass(frozen=True)
class Training:
    """How layers are trained; starts share batches and nothing else."""

    n_heads: int
    n_starts: int
    n_steps: int
    average_heads: bool = False
    seed: int = 0
    batch_size: int = 256
    learning_rate: float = 0.01


@contextmanager
def one_thread() -> Iterator[None]:
    """Steps are small: more threads would wait for each other most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@one_thread()
def train(X: NDArray, Y: NDArray, training: Training) -> list[LinearAttention]:
    """One layer of mode ``last`` for each start, from X (N, n, d) and Y (N, e), in float32.

    The loss of the starts is summed and Adam works entry by entry, so that each start is trained
    as if it were alone.
    """
    generator = torch.Generator().manual_seed(training.seed)
    tokens, targets = (torch.tensor(array, dtype=torch.float32) for array in (X, Y))
    grams, queries = tokens.transpose(1, 2) @ tokens, tokens[:, -1]
    attn, value = _start(training, X.shape[2], Y.shape[1], generator)
    share = 1.0 / training.n_heads if training.average_heads else 1.0
    optimiser = torch.optim.Adam([attn, value], lr=training.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, training.n_steps)
    for _ in range(training.n_steps):
        batch = torch.randint(len(X), (training.batch_size,), generator=generator)
        optimiser.zero_grad()
        error = _forward(grams[batch], queries[batch], attn, share * value) - targets[batch]
        error.square().sum(-1).mean(-1).sum().backward()
        optimiser.step()
        schedule.step()
    return [_as_layer(A, share * V) for A, V in zip(attn, value, strict=True)]


def _start(
    training: Training, n_dims: int, n_outputs: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Matrices attn (starts, H, d, d) and value (starts, H, d, e), entries N(0, 1/d)."""
    shape = (training.n_starts, training.n_heads, n_dims)
    attn = torch.randn(*shape, n_dims, generator=generator) / n_dims**0.5
    value = torch.randn(*shape, n_outputs, generator=generator) / n_dims**0.5
    return attn.requires_grad_(), value.requires_grad_()


def _forward(grams: Tensor, queries: Tensor, attn: Tensor, value: Tensor) -> Tensor:
    """(B, d, d) and (B, d) -> (starts, B, e): sum over heads of V^T G A^T x / sqrt(d)."""
    keys = torch.einsum("bl,shlk->shbk", queries, attn / grams.shape[1] ** 0.5)
    attended = torch.einsum("bjk,shbk->shbj", grams, keys)
    return torch.einsum("shbj,shja->sba", attended, value)


def _as_layer(attn: Tensor, value: Tensor) -> LinearAttention:
    """The trained parameters with the factor 1/sqrt(d) folded in."""
    A, V = (tensor.detach().double().numpy() for tensor in (attn, value))
    return LinearAttention(A / A.shape[1] ** 0.5, V, mode="last")
