"""Stretches: the fixed order in which chunks are added up, whoever does the work.

Each stretch is added up chunk by chunk, and the results of the stretches one after the other.
Floating point makes the order a part of the result; this one depends on the number of chunks
alone, so any number of workers, any retry and any resume give the same bits.
"""

from __future__ import annotations

from itertools import pairwise

# Enough for as many workers; each of them holds one sum.
MOST_STRETCHES = 64


def stretches(n_chunks: int) -> list[range]:
    """Consecutive ranges of chunks, at most MOST_STRETCHES, as equal as possible, long ones first.

    >>> stretches(3)
    [range(0, 1), range(1, 2), range(2, 3)]
    """
    count = min(n_chunks, MOST_STRETCHES)
    if count == 0:
        return []
    share, longer = divmod(n_chunks, count)
    starts = [each * share + min(each, longer) for each in range(count + 1)]
    return [range(first, stop) for first, stop in pairwise(starts)]
