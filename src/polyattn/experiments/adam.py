"""The gradient baseline: the same layer trained by Adam with the paper's settings.

Parameters as in the paper's experiments [yau2024: section 4.1]: entries of Q_h and V_h start at
N(0, 1/d), scores are divided by sqrt(d), the mean is taken over heads; Adam with rate 0.01,
batches of 64 sequences, gradient norm clipped; float32.  The forward pass forms the masked n x n
scores: at the paper's n = 100 that is faster than the form that is linear in n.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import missing_extra
from polyattn.model import LinearAttention

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise missing_extra("torch", "torch") from None

# The validation error is looked at first after so many seconds, then at growing intervals.
FIRST_LOOK, LOOK_GROWTH = 0.02, 1.15

# Steps that are timed to choose the number of threads.
TRIAL_STEPS = 5


@dataclass(frozen=True)
class AdamSettings:
    """The paper's settings; ``max_norm`` is the clipped norm of the gradient."""

    n_heads: int = 1
    learning_rate: float = 0.01
    batch_size: int = 64
    max_norm: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class AdamRun:
    """A run: the validation error after so many seconds of training, and the final layer."""

    settings: AdamSettings
    seconds: tuple[float, ...]
    errors: tuple[float, ...]
    n_steps: int
    layer: LinearAttention


def train(
    X: NDArray,
    Y: NDArray,
    X_validation: NDArray,
    Y_validation: NDArray,
    seconds: float,
    settings: AdamSettings | None = None,
    on_look: Callable[[float, float], None] | None = None,
) -> AdamRun:
    """Train a causal layer for ``seconds``; looking at the validation error is not counted.

    X (N, n, d) and Y (N, n, e).  Errors are means over positions of ||y - F(X)||^2, computed in
    float64.  ``on_look(elapsed, error)`` is called at every look.
    """
    chosen = settings or AdamSettings()
    generator = torch.Generator().manual_seed(chosen.seed)
    tokens, targets = (torch.tensor(array, dtype=torch.float32) for array in (X, Y))
    parameters = _start(chosen.n_heads, X.shape[2], Y.shape[2], generator)
    optimiser = torch.optim.Adam(parameters, lr=chosen.learning_rate)
    batches = _batches(len(X), chosen.batch_size, generator)

    def differentiate(batch: Tensor) -> None:
        optimiser.zero_grad()
        loss = (_forward(tokens[batch], *parameters) - targets[batch]).square().mean()
        loss.backward()

    times, errors = [], []
    elapsed, next_look, n_steps = 0.0, FIRST_LOOK, 0
    with _fastest_threads(lambda: differentiate(torch.arange(min(len(X), chosen.batch_size)))):
        while True:
            if elapsed >= next_look or elapsed >= seconds:
                times.append(elapsed)
                errors.append(_error(_as_layer(*parameters), X_validation, Y_validation))
                next_look = elapsed * LOOK_GROWTH
                if on_look is not None:
                    on_look(elapsed, errors[-1])
            if elapsed >= seconds:
                return AdamRun(chosen, tuple(times), tuple(errors), n_steps, _as_layer(*parameters))
            start = time.perf_counter()
            differentiate(next(batches))
            torch.nn.utils.clip_grad_norm_(parameters, chosen.max_norm)
            optimiser.step()
            elapsed += time.perf_counter() - start
            n_steps += 1


@contextmanager
def _fastest_threads(run: Callable[[], None]) -> Iterator[None]:
    """One thread or all of them, whichever runs faster now; small steps often prefer one."""
    available = torch.get_num_threads()
    times = {}
    for count in {available, 1}:
        torch.set_num_threads(count)
        run()
        start = time.perf_counter()
        for _ in range(TRIAL_STEPS):
            run()
        times[count] = time.perf_counter() - start
    torch.set_num_threads(min(times, key=times.__getitem__))
    try:
        yield
    finally:
        torch.set_num_threads(available)


def _start(
    n_heads: int, n_dims: int, n_outputs: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Query matrices (H, d, d) and value matrices (H, d, e), entries N(0, 1/d)."""
    attn = torch.randn(n_heads, n_dims, n_dims, generator=generator) / n_dims**0.5
    value = torch.randn(n_heads, n_dims, n_outputs, generator=generator) / n_dims**0.5
    return attn.requires_grad_(), value.requires_grad_()


def _forward(X: Tensor, attn: Tensor, value: Tensor) -> Tensor:
    """(B, n, d) -> (B, n, e): masked scores over sqrt(d), mean over heads."""
    tokens = X[:, None]
    scores = torch.tril(tokens @ (attn / X.shape[2] ** 0.5) @ tokens.transpose(-1, -2))
    return (scores @ (tokens @ value)).mean(1)


def _as_layer(attn: Tensor, value: Tensor) -> LinearAttention:
    """The trained parameters with the factors 1/sqrt(d) and 1/H folded in."""
    n_heads, n_dims, _ = value.shape
    A, V = (tensor.detach().double().numpy() for tensor in (attn, value))
    return LinearAttention(A / n_dims**0.5, V / n_heads, mode="causal")


def _error(layer: LinearAttention, X: NDArray, Y: NDArray) -> float:
    return float(np.mean(np.sum((layer(X) - Y) ** 2, axis=-1)))


def _batches(n_sequences: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Batches of indices, epoch after epoch, each epoch in a new order."""
    while True:
        order = torch.randperm(n_sequences, generator=generator)
        yield from order.split(size)
