"""train_validated: a baseline trained on sequences, with looks at its error on others."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from polyattn_papers.baselines.train import Limit, as_float32, epochs, growing, train

# The validation error is looked at after 1, 2, 3, ... steps, later after so many times more.
LOOK_GROWTH = 1.15

#: Called with the seconds spent on steps so far and the validation error.
Listener = Callable[[float, float], None]


class Baseline(Protocol):
    """A torch module with a pass over what it needs of a sequence, which is prepared once."""

    def prepare(self, X: Tensor) -> tuple[Tensor, ...]: ...
    def __call__(self, *prepared: Tensor) -> Tensor: ...
    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def double(self) -> Baseline: ...


@dataclass(frozen=True)
class AdamSettings:
    """Adam without weight decay and with a constant rate; ``max_norm`` clips the gradient.

    ``seed`` is that of the order of the batches, and of the start where the caller makes it.
    """

    learning_rate: float = 0.01
    batch_size: int = 64
    max_norm: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class LabelledSequences:
    """Sequences X (N, n, d) and targets Y (N, n, e)."""

    X: NDArray = field(repr=False)
    Y: NDArray = field(repr=False)


@dataclass(frozen=True)
class ValidatedRun:
    """A run: validation errors after so many seconds and steps, and the best model seen.

    ``best_model`` is in float64.
    """

    seconds: tuple[float, ...]
    steps: tuple[int, ...]
    errors: tuple[float, ...]
    n_steps: int
    best_model: Baseline = field(repr=False)

    @property
    def best_error(self) -> float:
        """The smallest validation error of all looks."""
        return min(self.errors)

    @property
    def best_seconds(self) -> float:
        """When it was seen."""
        return self.seconds[self.errors.index(self.best_error)]

    def best_within(self, n_steps: int) -> float | None:
        """The smallest validation error of the looks within ``n_steps``; None after the end."""
        if n_steps > self.n_steps:
            return None
        looks = zip(self.steps, self.errors, strict=True)
        return min((error for step, error in looks if step <= n_steps), default=None)


def train_validated(
    model: Baseline,
    training: LabelledSequences,
    validation: LabelledSequences,
    limit: Limit,
    settings: AdamSettings,
    on_look: Listener | None = None,
    clock: Callable[[], float] = time.perf_counter,
    look_growth: float = LOOK_GROWTH,
) -> ValidatedRun:
    """Train ``model`` in place in float32; preparing and looking are not timed.

    Errors are means over positions of ||y - F(X)||^2, computed in float64.  A run whose error is
    no longer finite ends there.  ``on_look(elapsed, error)`` is called at every look.
    """
    prepared, targets = model.prepare(as_float32(training.X)), as_float32(training.Y)
    order = torch.Generator().manual_seed(settings.seed)
    record = _Record(model, validation, on_look)

    def loss(batch: Tensor) -> Tensor:
        outputs = model(*(part[batch] for part in prepared))
        return (outputs - targets[batch]).square().mean()

    run = train(
        loss,
        torch.optim.Adam(model.parameters(), lr=settings.learning_rate, fused=True),
        epochs(len(targets), settings.batch_size, order),
        limit,
        max_norm=settings.max_norm,
        looks=growing(look_growth),
        look=record.look,
        clock=clock,
    )
    looks = (tuple(record.times), tuple(record.steps), tuple(record.errors))
    return ValidatedRun(*looks, run.n_steps, record.best)


class _Record:
    """Validation errors, in float64, and the best model seen."""

    def __init__(
        self, model: Baseline, examples: LabelledSequences, on_look: Listener | None
    ) -> None:
        self.model, self.on_look = model, on_look
        self.best = copy.deepcopy(model).double()
        self.prepared = model.prepare(torch.tensor(examples.X, dtype=torch.float64))
        self.targets = torch.tensor(examples.Y, dtype=torch.float64)
        self.times: list[float] = []
        self.steps: list[int] = []
        self.errors: list[float] = []

    def look(self, n_steps: int, seconds: float) -> bool:
        """Whether the error is finite; only then it is noted."""
        seen = copy.deepcopy(self.model).double()
        with torch.no_grad():
            error = float((seen(*self.prepared) - self.targets).square().sum(-1).mean())
        if not math.isfinite(error):
            return False
        if error < min(self.errors, default=math.inf):
            self.best = seen
        self.times.append(seconds)
        self.steps.append(n_steps)
        self.errors.append(error)
        if self.on_look is not None:
            self.on_look(seconds, error)
        return True
