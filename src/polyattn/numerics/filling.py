"""Missing numbers of sequences from those beside them in the same sequence and coordinate.

Tokens stand one below the other, (n_tokens, d), and sequence i is ``offsets[i]..offsets[i + 1]``;
nothing is taken across these borders.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


def filled_by_previous(values: Array, missing: Flags, offsets: NDArray, default: Array) -> Array:
    """Each missing number becomes the last one seen before it, or its default (d,)."""
    before = _last_seen(missing, offsets)
    columns = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    filled = np.where(before >= 0, values[np.maximum(before, 0), columns], default)
    return np.where(missing, filled, values)


def filled_linearly(values: Array, missing: Flags, offsets: NDArray, default: Array) -> Array:
    """Each missing number on the line between those seen before and after it.

    Before the first and after the last number seen it is that one; where none is seen in the
    sequence, the default (d,).
    """
    before, after = _last_seen(missing, offsets), _next_seen(missing, offsets)
    columns = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    # With one side only, both ends of the line are that side.
    first = np.where(before >= 0, before, after)
    last = np.where(after >= 0, after, before)
    length = np.maximum(last - first, 1)
    share = (np.arange(len(values))[:, None] - first) / length
    share = np.where(last > first, share, 0.0)
    # Missing numbers are no ends of lines; where there is no end, the default takes its place.
    start, end = (
        np.where(missing, 0.0, values)[np.maximum(at, 0), columns] for at in (first, last)
    )
    line = np.where(first >= 0, start * (1.0 - share) + end * share, default)
    return np.where(missing, line, values)


def _last_seen(missing: Flags, offsets: NDArray) -> NDArray[np.intp]:
    """The token up to here that has a number there, of the same sequence; -1 without one."""
    tokens = np.arange(len(missing))[:, None]
    seen = np.maximum.accumulate(np.where(missing, -1, tokens), axis=0)
    first = np.repeat(offsets[:-1], np.diff(offsets))[:, None]
    return np.where(seen >= first, seen, -1)


def _next_seen(missing: Flags, offsets: NDArray) -> NDArray[np.intp]:
    """The token from here on that has a number there, of the same sequence; -1 without one."""
    tokens = np.arange(len(missing))[:, None]
    backwards = np.where(missing, len(missing), tokens)[::-1]
    seen = np.minimum.accumulate(backwards, axis=0)[::-1]
    stop = np.repeat(offsets[1:], np.diff(offsets))[:, None]
    return np.where(seen < stop, seen, -1)
