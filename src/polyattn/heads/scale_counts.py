"""How a number of heads is shared out among scales, where moments couple them.

Singular values of all scales together are a first guess.  From there a head is moved from one scale
to another as long as that lowers the loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyattn.heads.algebra import split_heads
from polyattn.heads.descent import HeadDescent, Patience, descend
from polyattn.heads.head_search import FreeDescent
from polyattn.heads.head_set import HeadSet
from polyattn.heads.metric import Metric

# A move has to lower the loss by this part.
WORTH_IT = 1e-3
# Multiply-adds after which no further move is tried.
TOTAL_WORK = 2e10


def moved_between_scales(
    tensor: NDArray, found: FreeDescent, metric: Metric, patience: Patience
) -> FreeDescent:
    """Heads with at most the loss of those found, and as many, shared out otherwise."""
    spent, improved = 0.0, metric.n_scales > 1
    while improved and found.loss > patience.enough:
        improved = False
        for start in _moves(tensor, found.heads, metric):
            trial = descend(tensor, start, metric, replace(patience, work=TOTAL_WORK / 10))
            spent += trial.work
            if trial.loss < (1.0 - WORTH_IT) * found.loss:
                found, improved = trial, True
                break
            if spent > TOTAL_WORK:
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
