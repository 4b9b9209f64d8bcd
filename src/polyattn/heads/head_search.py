"""The search for few heads: random starts for one number, then steps up and bisection.

Limits are counted in multiply-adds, not seconds: the same input always gives the same heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.heads.descent import HeadDescent, Patience, descend, round_work
from polyattn.heads.head_set import HeadSet
from polyattn.heads.metric import Metric

WORK_PER_COUNT = 8e9
MOST_STARTS = 80
# A start is given so many rounds, later ones more: descents towards heads that diverge never
# end, and are better left for another start.
FIRST_ROUNDS = 300
MORE_ROUNDS = 2.0**0.25
MOST_WORK = 2e11

# What was found with free heads.
FreeDescent: TypeAlias = HeadDescent[HeadSet]
# What one attempt with a given number of heads found (None: not good enough), and its work.
HeadTrial: TypeAlias = tuple[FreeDescent | None, float]


def random_heads(
    tensor: NDArray, counts: tuple[int, ...], metric: Metric, rng: np.random.Generator
) -> HeadSet:
    """A Gaussian start, smaller than the tensor (norm one), so that the first steps add to it.

    counts : the number of heads of each scale
    """
    n_outputs, n_values, n_keys, n_queries = tensor.shape
    n_heads = sum(counts)
    value = rng.standard_normal((n_heads, n_values, n_outputs // metric.n_scales))
    key = rng.standard_normal((n_heads, n_keys, n_queries))
    root = 2.0 * n_heads**0.25
    value /= root * np.sqrt(value[0].size)
    key /= root * np.sqrt(key[0].size)
    return HeadSet(value, key, counts, metric.shared)


def descents(
    tensor: NDArray,
    counts: tuple[int, ...],
    metric: Metric,
    patience: Patience,
    rng: np.random.Generator,
) -> Iterator[FreeDescent]:
    """Descents from random starts: 80 when a start is cheap, one when costly, none beyond."""
    first = FIRST_ROUNDS * round_work(tensor, sum(counts), metric)
    spent = 0.0
    for count in range(MOST_STARTS if first <= MOST_WORK else 0):
        if spent > WORK_PER_COUNT:
            return
        patience = replace(patience, work=first * MORE_ROUNDS**count)
        found = descend(tensor, random_heads(tensor, counts, metric, rng), metric, patience)
        spent += found.work
        yield found


def fewest(
    attempt: Callable[[int], HeadTrial], ladder: Iterable[int], upper: int, work: float
) -> FreeDescent | None:
    """The success with fewest heads below ``upper`` (None: none was found).

    Tries increasing numbers until one succeeds, then bisects.  Stops when ``work`` is spent.
    """
    best: FreeDescent | None = None
    failed, successful, spent = 0, upper, 0.0
    for heads in ladder:
        if heads >= upper or best is not None or spent > work:
            break
        best, more = attempt(heads)
        spent += more
        failed, successful = (heads, upper) if best is None else (failed, heads)
    while best is not None and successful - failed > 1 and spent <= work:
        heads = (failed + successful) // 2
        found, more = attempt(heads)
        spent += more
        failed, successful = (heads, successful) if found is None else (failed, heads)
        best = found or best
    return best
