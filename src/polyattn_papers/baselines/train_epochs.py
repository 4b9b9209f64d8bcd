"""train_epochs: many models at once, by AdamW, with validation errors after given epochs.

Seeds, learning rates and sizes of a grid are trained side by side: their losses are summed, no
parameter is shared and AdamW works entry by entry, so that each model is trained as if it were
alone.  The paper's text names Adam and its table AdamW [yau2024: appendix G.1], without a weight
decay; ours is a setting.  The rate is constant, no gradient is clipped, parameters are float32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyattn.errors import InvalidInput
from polyattn_papers.baselines.threads import n_threads
from polyattn_papers.baselines.train import Limit, epochs, train


@dataclass(frozen=True)
class EpochSettings:
    """Rates of the grid, size of batches, and the epochs after which errors are noted."""

    rates: tuple[float, ...]
    batch_size: int
    looks: tuple[int, ...]
    weight_decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.looks or list(self.looks) != sorted({*self.looks}) or self.looks[0] < 1:
            raise InvalidInput(
                f"looks must be epochs from 1 on, in increasing order; got {self.looks!r}."
            )

    def n_steps(self, n_sequences: int) -> list[int]:
        """The number of steps at each look: an epoch's last batch may be smaller."""
        return [look * -(-n_sequences // self.batch_size) for look in self.looks]


@dataclass(frozen=True)
class SeededSequences:
    """Sequences X (S, N, n, d) and targets Y (S, N, n, 1), one data set for each of S seeds."""

    X: NDArray[np.float64] = field(repr=False)
    Y: NDArray[np.float64] = field(repr=False)


class ModelGrid(Protocol):
    """Models of S seeds, R rates and M sizes: float32 parameters, one group for each rate."""

    def groups(self) -> Sequence[Sequence[Tensor]]: ...
    def prepare(self, X: Tensor, Y: Tensor) -> tuple[Tensor, ...]:
        """What losses need of sequences (S, N, n, d) and targets (S, N, n, 1), each (S, N, ...)."""
        ...

    @property
    def losses(self) -> Callable[..., Tensor]:
        """Mean squared errors (S, R * M) of a batch of what was prepared."""
        ...

    def errors(self, X: Tensor, Y: Tensor) -> Tensor:
        """Mean squared errors (S, R * M) of sequences and targets, in float64."""
        ...


@dataclass(frozen=True)
class EpochRun:
    """``errors`` (looks, S, R * M): means over positions of (y - F(X))^2, in float64."""

    errors: NDArray[np.float64] = field(repr=False)
    seconds: float
    n_steps: int


# Steps are small: more threads would wait for each other most of the time.
@n_threads(1)
def train_epochs(
    models: ModelGrid,
    training: SeededSequences,
    validation: SeededSequences,
    settings: EpochSettings,
) -> EpochRun:
    """Train all models in place; looks are not timed.  Seeds see their batches in one order.

    A model whose numbers are no longer finite has the error infinity, and disturbs no other.
    """
    n_sequences = training.X.shape[1]
    prepared = models.prepare(torch.tensor(training.X), torch.tensor(training.Y))
    judged = torch.tensor(validation.X), torch.tensor(validation.Y)
    errors: list[NDArray] = []

    def loss(batch: Tensor) -> Tensor:
        return models.losses(*(part[:, batch] for part in prepared)).sum()

    def look(_: int, __: float) -> bool:
        with torch.no_grad():
            found = models.errors(*judged)
        errors.append(torch.nan_to_num(found, nan=torch.inf).numpy())
        return True

    steps = settings.n_steps(n_sequences)
    groups = zip(models.groups(), settings.rates, strict=True)
    made = train(
        loss,
        torch.optim.AdamW(
            [{"params": [*one], "lr": rate} for one, rate in groups],
            weight_decay=settings.weight_decay,
            fused=True,
        ),
        epochs(n_sequences, settings.batch_size, torch.Generator().manual_seed(settings.seed)),
        Limit(n_steps=steps[-1]),
        looks=steps,
        look=look,
        clock=time.thread_time,
    )
    return EpochRun(np.stack(errors), made.seconds, made.n_steps)
