"""The search for few heads: random starts for one number, then steps up and bisection.

Limits are counted in multiply-adds, not seconds: the same input always gives the same heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from polyattn.heads.descent import HeadDescent, Metric, Patience, descend, round_work

WORK_PER_COUNT = 8e9
MOST_STARTS = 80
# A start is given so many rounds, later ones more: descents towards heads that diverge never
# end, and are better left for another start.
FIRST_ROUNDS = 300
MORE_ROUNDS = 2.0**0.25
MOST_WORK = 2e11


@dataclass(frozen=True)
class HeadTrial:
    """What one attempt with a given number of heads found (None: not good enough)."""

    found: HeadDescent | None
    work: float


def random_heads(
    tensor: NDArray, n_heads: int, rng: np.random.Generator
) -> tuple[NDArray, NDArray]:
    """A Gaussian start, smaller than the tensor (norm one), so that the first steps add to it."""
    n_outputs, width, _, n_queries = tensor.shape
    value = rng.standard_normal((n_heads, width, n_outputs))
    key = rng.standard_normal((n_heads, width, n_queries))
    root = 2.0 * n_heads**0.25
    return value / (root * np.sqrt(value[0].size)), key / (root * np.sqrt(key[0].size))


def descents(
    tensor: NDArray, n_heads: int, metric: Metric, patience: Patience, rng: np.random.Generator
) -> Iterator[HeadDescent]:
    """Descents from random starts: 80 when a start is cheap, one when costly, none beyond."""
    first = FIRST_ROUNDS * round_work(tensor, n_heads, metric)
    spent = 0.0
    for count in range(MOST_STARTS if first <= MOST_WORK else 0):
        if spent > WORK_PER_COUNT:
            return
        patience = replace(patience, work=first * MORE_ROUNDS**count)
        found = descend(tensor, *random_heads(tensor, n_heads, rng), metric, patience)
        spent += found.work
        yield found


def first_within(loss: float, attempts: Iterable[HeadDescent]) -> HeadTrial:
    """The first descent that reaches ``loss``, and the work of all up to it."""
    spent = 0.0
    for found in attempts:
        spent += found.work
        if found.loss <= loss:
            return HeadTrial(found, spent)
    return HeadTrial(None, spent)


def fewest(
    attempt: Callable[[int], HeadTrial], ladder: Iterable[int], upper: int, work: float
) -> HeadDescent | None:
    """The success with fewest heads below ``upper`` (None: none was found).

    Climbs the ladder of increasing numbers until one succeeds, then bisects between it and the
    last failure.  Stops when ``work`` is spent.
    """
    best: HeadDescent | None = None
    failed, successful, spent = 0, upper, 0.0
    for heads in ladder:
        if heads >= upper or best is not None or spent > work:
            break
        trial = attempt(heads)
        best, spent = trial.found, spent + trial.work
        failed, successful = (heads, upper) if best is None else (failed, heads)
    while best is not None and successful - failed > 1 and spent <= work:
        heads = (failed + successful) // 2
        trial = attempt(heads)
        best, spent = trial.found or best, spent + trial.work
        failed, successful = (heads, successful) if trial.found is None else (failed, heads)
    return best
