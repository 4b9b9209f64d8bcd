"""train: the one loop that trains every baseline by gradients."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from polyattn.errors import InvalidInput

#: The factor of the learning rate, from the number of steps taken and the share of the limit used.
Schedule = Callable[[int, float], float]

#: Called with the number of steps and their seconds; whether to go on.
Look = Callable[[int, float], bool]


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

    def share(self, n_steps: int, seconds: float) -> float:
        """How much of it is used: 1 or more at the end."""
        return max(n_steps / self.n_steps, seconds / self.seconds)


@dataclass(frozen=True)
class Training:
    """A run: the loss of each step on its batch, and the seconds of all steps."""

    losses: list[float] = field(repr=False)
    seconds: float

    @property
    def n_steps(self) -> int:
        """The number of steps."""
        return len(self.losses)


def train(
    loss: Callable[[Tensor], Tensor],
    optimiser: torch.optim.Optimizer,
    batches: Iterator[Tensor],
    limit: Limit,
    schedule: Schedule | None = None,
    max_norm: float | None = None,
    looks: Iterable[int] = (),
    look: Look | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Training:
    """Train the parameters of ``optimiser`` in place until the limit is used.

    Parameters
    ----------
    loss : indices of a batch -> the loss on it
    batches : indices, without end (``epochs``, ``draws``)
    schedule
        Multiplies the learning rate before every step; without one it stays.
    max_norm
        Clips the norm of the gradient of all parameters together.
    looks, look
        ``look`` is called after so many steps, and after the last one.  Its time is not counted,
        and training ends when it returns False.
    clock
        In seconds.  On one thread ``time.thread_time`` is not shortened by a busy machine.
    """
    groups = optimiser.param_groups
    parameters = [one for group in groups for one in group["params"]]
    rates = [group["lr"] for group in groups]
    losses: list[float] = []
    seconds, looking, going = 0.0, iter(looks), True
    next_look = next(looking, math.inf)
    while going:
        start = clock()
        if schedule is not None:
            factor = schedule(len(losses), limit.share(len(losses), seconds))
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate * factor
        optimiser.zero_grad()
        value = loss(next(batches))
        value.backward()
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        optimiser.step()
        losses.append(value.item())
        seconds += clock() - start
        going = limit.share(len(losses), seconds) < 1
        if look is not None and (len(losses) >= next_look or not going):
            going = look(len(losses), seconds) and going
            next_look = next(looking, math.inf)
    return Training(losses, seconds)


def epochs(n_examples: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Batches of indices, epoch after epoch, each epoch in a new order."""
    while True:
        order = torch.randperm(n_examples, generator=generator)
        yield from order.split(size)


def draws(n_examples: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Batches of indices, each drawn by itself with replacement."""
    while True:
        yield torch.randint(n_examples, (size,), generator=generator)


def growing(factor: float) -> Iterator[int]:
    """Steps 1, 2, 3, ..., later each ``factor`` times the one before."""
    step = 1
    while True:
        yield step
        step = max(step + 1, math.ceil(step * factor))


def cosine(_: int, share: float) -> float:
    """A schedule: the rate falls from 1 to 0 by a cosine."""
    return float(0.5 * (1 + np.cos(np.pi * share)))


def as_float32(array: np.ndarray) -> Tensor:
    """The precision in which baselines are trained."""
    return torch.tensor(array, dtype=torch.float32)
