"""The search for few heads: random starts for one number, then steps up and bisection.

Where moments couple scales, singular values of all of them together are a first guess of how many
heads each has; from there a head is moved from one to another as long as that lowers the loss.
Limits are counted in multiply-adds, not seconds: the same input always gives the same heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.heads.algebra import split_heads
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
# A move has to lower the loss by this part.
WORTH_IT = 1e-3
# Multiply-adds after which no further move of a head is tried.
MOVING_WORK = 2e10

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
    work: float = WORK_PER_COUNT,
) -> Iterator[FreeDescent]:
    """Descents from random starts: 80 when a start is cheap, one when costly, none beyond.

    work : multiply-adds after which there is no further start
    """
    first = FIRST_ROUNDS * round_work(tensor, sum(counts), metric)
    spent = 0.0
    for count in range(MOST_STARTS if first <= MOST_WORK else 0):
        if spent > work:
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


def moved_between_scales(
    tensor: NDArray, found: FreeDescent, metric: Metric, patience: Patience
) -> FreeDescent:
    """Heads with at most the loss of those found, and as many, shared out otherwise."""
    spent, improved = 0.0, metric.n_scales > 1
    while improved and found.loss > patience.enough:
        improved = False
        for start in _moves(tensor, found.heads, metric):
            trial = descend(tensor, start, metric, replace(patience, work=MOVING_WORK / 10))
            spent += trial.work
            if trial.loss < (1.0 - WORTH_IT) * found.loss:
                found, improved = trial, True
                break
            if spent > MOVING_WORK:
                return found
    return HeadDescent(found.heads, found.loss, found.work + spent)


def _moves(tensor: NDArray, heads: HeadSet, metric: Metric) -> Iterator[HeadSet]:
    """The weakest head of one scale replaced by the strongest of what another lacks."""
    heads = heads.balanced()
    residual = (tensor - heads.tensor()).reshape(metric.n_scales, -1, *tensor.shape[1:])
    parts = [(heads.value[at], heads.key[at]) for at in heads.parts()]
    missing = [split_heads(part, 1) for part in residual]
    # Scales that lack most first.
    order = np.argsort([-np.linalg.norm(part) for part in residual], kind="stable")
    for gains in order:
        for loses in order[::-1]:
            if gains == loses or heads.counts[loses] == 0:
                continue
            moved = list(parts)
            value, key = parts[loses]
            moved[loses] = value[:-1], key[:-1]
            value, key = parts[gains]
            more_value, more_key = missing[gains]
            moved[gains] = np.concatenate([value, more_value]), np.concatenate([key, more_key])
            yield HeadSet.joined(moved, heads.shared)
