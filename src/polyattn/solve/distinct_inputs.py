"""Equal sequences as one: the same fit, and errors of sequences left out with all their copies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyattn.sequences.equal import numbered, sequence_digests
from polyattn.stats.passes import of_parts
from polyattn.stats.rows import Rows


def with_distinct_inputs(rows: Rows) -> tuple[Rows, NDArray[np.float64]]:
    """Rows of the same fit, in which one of several equal sequences stands for all of them.

    It has the sum of their weights and the mean of their targets.  Squared errors of all of them
    are those of the one plus (N,), how their targets vary among themselves, in scaled units.

    Targets that come again and again to few sequences say little about others: what a layer cannot
    express there is the same each time.  Where sequences are few and discrete, equal ones may be
    independent draws: then this is on the safe side.
    Rows without copies are returned as they are; of others all targets are held in memory.
    """
    within = np.zeros(len(rows.batch))
    groups = numbered(of_parts(rows, _digests))
    if groups.max() + 1 == len(groups):
        return rows, within
    order = np.argsort(groups, kind="stable")
    together = np.split(order, np.cumsum(np.bincount(groups))[:-1])
    equal = [numbers for numbers in together if len(numbers) > 1]
    given = rows.sequence_weights
    weights = np.ones(len(rows.batch)) if given is None else given.copy()
    targets = rows.scaled_targets(0, rows.n_rows).T.copy()
    borders = rows.borders
    for numbers in equal:
        first, own = numbers[0], weights[numbers]
        spans = [slice(*borders[[i, i + 1]]) for i in numbers]
        weights[numbers], weights[first] = 0.0, own.sum()
        if weights[first] > 0.0:
            # Shares do not overflow where weights do.
            shares = own / own.max()
            each = np.array([targets[span] for span in spans])
            mean = np.average(each, axis=0, weights=shares)
            # Equal targets have no spread, which their mean would round.
            mean = np.where(np.ptp(each, axis=0) == 0.0, each[0], mean)
            targets[spans[0]] = mean
            within[first] = np.einsum("i,ije->", own, (each - mean) ** 2)
    plain = np.ldexp(targets, rows.target_exponent or 0)
    return replace(rows, sequence_weights=weights, targets=plain), within


def _digests(rows: Rows) -> list[bytes]:
    return sequence_digests(rows.batch, rows.context)
