"""The loop that trains every baseline: Adam on minibatches, float32, clipped gradients."""

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

from polyattn.errors import InvalidInput

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
class DescentSettings:
    """Adam without weight decay and with a constant rate; ``max_norm`` clips the gradient.

    ``seed`` is that of the order of the batches, and of the start where the caller makes it.
    """

    learning_rate: float = 0.01
    batch_size: int = 64
    max_norm: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Limit:
    """When to stop: after ``seconds`` of steps, or after ``n_steps``, which can be repeated."""

    seconds: float = math.inf
    n_steps: float = math.inf

    def __post_init__(self) -> None:
        if not 0 < min(self.seconds, self.n_steps) < math.inf:
            raise InvalidInput(
                "a limit needs positive seconds or a positive number of steps; "
                f"got seconds={self.seconds!r}, n_steps={self.n_steps!r}."
            )


@dataclass(frozen=True)
class Examples:
    """Sequences X (N, n, d) and targets Y (N, n, e)."""

    X: NDArray = field(repr=False)
    Y: NDArray = field(repr=False)


@dataclass(frozen=True)
class Descent:
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


def descend(
    model: Baseline,
    training: Examples,
    validation: Examples,
    limit: Limit,
    settings: DescentSettings,
    on_look: Listener | None = None,
    clock: Callable[[], float] = time.perf_counter,
    look_growth: float = LOOK_GROWTH,
) -> Descent:
    """Train ``model`` in place; preparing and looking at the validation error are not timed.

    Errors are means over positions of ||y - F(X)||^2, computed in float64.  A run whose error is
    no longer finite ends there.  ``on_look(elapsed, error)`` is called at every look.
    On one thread ``clock`` may be ``time.thread_time``, which a busy machine does not shorten.
    """
    stepper = _Stepper(model, training, settings)
    watch = _Watch(model, validation, on_look)
    elapsed, n_steps, next_look = 0.0, 0, 1
    while True:
        start = clock()
        stepper.step()
        elapsed += clock() - start
        n_steps += 1
        over = elapsed >= limit.seconds or n_steps >= limit.n_steps
        if n_steps >= next_look or over:
            over = not watch.look(elapsed, n_steps) or over
            next_look = max(n_steps + 1, math.ceil(n_steps * look_growth))
        if over:
            looks = (tuple(watch.times), tuple(watch.steps), tuple(watch.errors))
            return Descent(*looks, n_steps, watch.best)


def batches_of(n_sequences: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Batches of indices, epoch after epoch, each epoch in a new order."""
    while True:
        order = torch.randperm(n_sequences, generator=generator)
        yield from order.split(size)


def as_float32(array: NDArray) -> Tensor:
    """The precision in which baselines are trained."""
    return torch.tensor(array, dtype=torch.float32)


class _Watch:
    """Looks at the validation error, in float64, and keeps the best model seen."""

    def __init__(self, model: Baseline, examples: Examples, on_look: Listener | None) -> None:
        self.model, self.on_look = model, on_look
        self.best = copy.deepcopy(model).double()
        self.prepared = model.prepare(torch.tensor(examples.X, dtype=torch.float64))
        self.targets = torch.tensor(examples.Y, dtype=torch.float64)
        self.times: list[float] = []
        self.steps: list[int] = []
        self.errors: list[float] = []

    def look(self, elapsed: float, n_steps: int) -> bool:
        """Whether the error is finite; only then it is noted."""
        seen = copy.deepcopy(self.model).double()
        with torch.no_grad():
            error = float((seen(*self.prepared) - self.targets).square().sum(-1).mean())
        if not math.isfinite(error):
            return False
        if error < min(self.errors, default=math.inf):
            self.best = seen
        self.times.append(elapsed)
        self.steps.append(n_steps)
        self.errors.append(error)
        if self.on_look is not None:
            self.on_look(elapsed, error)
        return True


class _Stepper:
    """Adam on minibatches; what the model needs of the sequences is prepared beforehand."""

    def __init__(self, model: Baseline, examples: Examples, settings: DescentSettings) -> None:
        self.model, self.settings = model, settings
        self.prepared = model.prepare(as_float32(examples.X))
        self.targets = as_float32(examples.Y)
        self.parameters = list(model.parameters())
        self.optimiser = torch.optim.Adam(self.parameters, lr=settings.learning_rate, fused=True)
        generator = torch.Generator().manual_seed(settings.seed)
        self.batches = batches_of(len(self.targets), settings.batch_size, generator)

    def step(self) -> None:
        batch = next(self.batches)
        self.optimiser.zero_grad()
        outputs = self.model(*(part[batch] for part in self.prepared))
        (outputs - self.targets[batch]).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.max_norm)
        self.optimiser.step()
