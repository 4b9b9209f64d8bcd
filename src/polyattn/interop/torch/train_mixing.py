"""Adam on the matrices M of linearised heads: what a fit in closed form is compared with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Learning rates, each of which is given the whole time; features are of order one or below.
RATES = (3e-1, 3e-2, 3e-3)

# Positions of one step.
BATCH_POSITIONS = 2048


class HeadFeatures(NamedTuple):
    """One head on some sequences: phi (B, T, F), rows (B, 1 or T, G, c), own (B, T, c) or None."""

    phi: NDArray
    rows: NDArray
    own: NDArray | None


# Of some sequences: every head, the query tokens (B, T, d + 1) or None, and outputs (B, T, e).
Example = tuple[Sequence[HeadFeatures], NDArray | None, NDArray]

# M of every head, and W (d + 1, e) or None.
Trained = tuple[list[NDArray], NDArray | None]


def train_mixing(
    examples: Sequence[Example], coordinates: Sequence[NDArray], seconds: tuple[float, float]
) -> list[Trained]:
    """M of every head, and W, after so many seconds of Adam, and after so many.

    coordinates : E (c, e) of each head, by which its c numbers stand in the outputs

    Mean squared error of the outputs, from zero, in float32, mini-batches in random order.  Every
    learning rate has the first time; the one with the least training error goes on to the second.
    """
    data = [_as_tensors(example) for example in examples]
    outer = [torch.tensor(E, dtype=torch.float32) for E in coordinates]
    runs = [_AdamRun(data, outer, rate) for rate in RATES]
    for run in runs:
        run.train(seconds[0])
    best = min(runs, key=_AdamRun.error)
    first = best.state()
    best.train(seconds[1] - seconds[0])
    return [first, best.state()]


class _AdamRun:
    """One training, which can be continued."""

    def __init__(self, data: list, outer: list[Tensor], rate: float) -> None:
        self.data, self.outer = data, outer
        heads, tokens, outputs = data[0]
        self.mixings = [
            torch.zeros(
                phi.shape[2], rows.shape[2] + (own is not None), requires_grad=True
            )
            for phi, rows, own in heads
        ]  # fmt: skip
        self.weights = None
        if tokens is not None:
            self.weights = torch.zeros(tokens.shape[2], outputs.shape[2], requires_grad=True)
        kept = [*self.mixings, *([] if self.weights is None else [self.weights])]
        self.adam = torch.optim.Adam(kept, lr=rate)
        self.rng = np.random.default_rng(0)

    def train(self, seconds: float) -> None:
        """Steps until the time is over; the last one may end a little later."""
        start = time.perf_counter()
        while True:
            for i in self.rng.permutation(len(self.data)):
                outputs = self.data[i][2]
                step = max(1, BATCH_POSITIONS // outputs.shape[1])
                order = self.rng.permutation(len(outputs))
                for first in range(0, len(outputs), step):
                    if time.perf_counter() - start >= seconds:
                        return
                    some = torch.as_tensor(order[first : first + step])
                    self.adam.zero_grad()
                    missed = self.predicted(i, some) - outputs[some]
                    (missed * missed).mean().backward()
                    self.adam.step()

    def predicted(self, i: int, some: Tensor) -> Tensor:
        """Outputs of some sequences of one part of the data."""
        heads, tokens, outputs = self.data[i]
        total = torch.zeros_like(outputs[some])
        for (phi, rows, own), M, E in zip(heads, self.mixings, self.outer, strict=True):
            weights = phi[some] @ M
            G = rows.shape[2]
            if rows.shape[1] == 1:
                found = weights[..., :G] @ rows[some, 0]
            else:
                found = torch.einsum("btg,btgc->btc", weights[..., :G], rows[some])
            if own is not None:
                found = found + weights[..., G:] * own[some]
            total = total + found @ E
        if self.weights is not None:
            total = total + tokens[some] @ self.weights
        return total

    def error(self) -> float:
        """The squared error on all the data; infinite where it diverged."""
        with torch.no_grad():
            total = 0.0
            for i, (_, _, outputs) in enumerate(self.data):
                missed = self.predicted(i, torch.arange(len(outputs))) - outputs
                total += float((missed * missed).sum())
        return total if np.isfinite(total) else np.inf

    def state(self) -> Trained:
        """Copies of M and W in float64."""
        mixings = [M.detach().double().numpy().copy() for M in self.mixings]
        return (
            mixings,
            None if self.weights is None else self.weights.detach().double().numpy().copy(),
        )


def _as_tensors(example: Example) -> tuple:
    heads, tokens, outputs = example

    def single(array: NDArray | None) -> Tensor | None:
        return None if array is None else torch.tensor(array, dtype=torch.float32)

    made = [tuple(map(single, head)) for head in heads]
    return made, single(tokens), single(outputs)
