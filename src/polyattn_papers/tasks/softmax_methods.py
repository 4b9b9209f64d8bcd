"""What is compared on softmax layers: the learner, queries, random starts and Adam.

Each takes a task and comes back with an attempt: the layer it ended with, its time, and what it
says of itself.  Nothing here looks at the planted layer but through ``solved``, which counts the
random starts that chance gets right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

from polyattn.data.recovery import Planted
from polyattn.errors import InvalidInput
from polyattn.model import SoftmaxAttention
from polyattn.sequences import as_batch
from polyattn.softmax import LearnedSoftmax, learn_from_queries, learn_softmax
from polyattn.softmax.examples import Examples, prepare
from polyattn.softmax.growth.search_heads import SCALES
from polyattn.softmax.growth.starts import random_heads
from polyattn.softmax.polish import Projection, enough, polish
from polyattn.targets import as_targets

Task = Planted[SoftmaxAttention]

#: Outcomes that are not the learner's: too few data to begin with; a method that claims nothing.
REFUSED, NO_CLAIM = "refused", "no_claim"

#: Descent from random heads ends when steps gain less than this: on few examples, and on all.
FAR_GAIN, NEAR_GAIN = 1e-3, 1e-4


@dataclass(frozen=True, eq=False)
class Attempt:
    """What one method came to.

    Attributes
    ----------
    layer
        The best layer it found, None if it refused to begin.
    outcome, claimed
        What it says of itself, and whether it says that these are the heads.
    validation_error
        Its own relative error on what it held out, None where it holds out nothing.
    attn_bar, value_bar, attn_deviation
        The largest relative errors it expects of a head, and the norm of the standard deviations
        of all entries of attn; None where it expects nothing.
    n_sequences
        Sequences whose outputs it was given.
    n_starts, n_solved
        Of random starts: how many, and how many of them ended at the planted function.
    """

    layer: SoftmaxAttention | None = field(repr=False)
    outcome: str
    claimed: bool
    seconds: float
    n_sequences: int
    validation_error: float | None = None
    attn_bar: float | None = None
    value_bar: float | None = None
    attn_deviation: float | None = None
    n_starts: int | None = None
    n_solved: int | None = None


def by_learner(
    task: Task, n_heads: int | None, method: str = "auto", max_seconds: float | None = None
) -> Attempt:
    """``learn_softmax``; that it refuses too few examples is an attempt, too."""
    start = time.perf_counter()
    try:
        found = learn_softmax(task.X, task.Y, n_heads, method, max_seconds=max_seconds)
    except InvalidInput:
        return Attempt(None, REFUSED, False, time.perf_counter() - start, len(task.X))
    return _learned(found, time.perf_counter() - start, len(task.X))


def by_queries(task: Task, seed: int) -> Attempt:
    """``learn_from_queries`` with the planted layer as its black box; heads are counted."""
    start = time.perf_counter()
    found = learn_from_queries(task.layer, task.layer.n_dims, random_state=seed)
    spent = time.perf_counter() - start
    return Attempt(
        found.layer, found.outcome.name, found.recovered, spent, found.n_queries,
        validation_error=found.validation_error,
    )  # fmt: skip


def by_random_starts(
    task: Task,
    n_heads: int,
    seconds: float,
    seed: int,
    solved: Callable[[SoftmaxAttention], bool],
) -> Attempt:
    """The control: the learner's own descent from random heads, again and again.

    As many starts as fit in ``seconds``, at least one; the layer is that of the least error on
    the examples.
    """
    rng = np.random.default_rng(seed)
    batch = as_batch(task.X)
    examples, units = prepare(batch, as_targets(task.Y, batch, "full"), "full", rng)
    best, least, n_starts, n_solved = None, np.inf, 0, 0
    start = time.perf_counter()
    for projection in restarts(examples, n_heads, rng):
        layer = SoftmaxAttention(*units.heads(projection.attn, projection.value), "full")
        n_starts, n_solved = n_starts + 1, n_solved + solved(layer)
        if best is None or projection.error < least:
            best, least = layer, projection.error
        if time.perf_counter() - start > seconds:
            break
    spent = time.perf_counter() - start
    return Attempt(
        best, NO_CLAIM, False, spent, len(batch), n_starts=n_starts, n_solved=n_solved
    )  # fmt: skip


def restarts(examples: Examples, n_heads: int, rng: np.random.Generator) -> Iterator[Projection]:
    """Descents from random heads, without end; the scale of the logits goes round ``SCALES``.

    Each goes on enough examples to see the way, then on all, where it comes to rest.
    """
    few = enough(examples, n_heads)
    for scale in cycle(SCALES):
        attn = random_heads(rng, n_heads, examples.width, scale)
        if 2 * len(few) <= len(examples):
            attn = polish(few, attn, gain=FAR_GAIN).attn
        yield polish(examples, attn, gain=NEAR_GAIN)


def by_adam(task: Task, n_heads: int, seconds: float, seed: int) -> Attempt:
    """All heads trained together from one random start for ``seconds``."""
    from polyattn_papers.baselines.train import Limit
    from polyattn_papers.baselines.train_softmax import train_softmax

    X, Y = np.asarray(task.X), np.asarray(task.Y)
    layer = train_softmax(X, Y, n_heads, Limit(seconds), seed=seed)
    return Attempt(layer, NO_CLAIM, False, seconds, len(task.X))


def _learned(found: LearnedSoftmax, seconds: float, n_sequences: int) -> Attempt:
    return Attempt(
        found.layer, found.outcome.name, found.recovered, seconds, n_sequences,
        validation_error=found.validation_error,
        attn_bar=finite(float(found.attn_error.max())),
        value_bar=finite(float(found.value_error.max())),
        attn_deviation=finite(float(np.linalg.norm(found.attn_std))),
    )  # fmt: skip


def finite(error: float) -> float | None:
    """The error; None where it is infinite: it can be neither compared nor written to a table."""
    return error if np.isfinite(error) else None
