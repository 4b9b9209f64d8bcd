"""Heads of limited rank: A_h = Q_h K_h^T with k columns, as layers with head dimension k have.

A head of rank r is the sum of ceil(r / k) heads of rank k with the same value.  So a limit on the
rank alone costs nothing but heads; together with a limit on their number it costs accuracy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyattn.heads.descent import HeadDescent, Patience, descend
from polyattn.heads.head_search import random_heads
from polyattn.heads.head_set import HeadSet
from polyattn.heads.low_rank_heads import LowRankHeads
from polyattn.heads.metric import Metric
from polyattn.heads.target import Compression
from polyattn.quoting import counted

# Random starts beside the truncated heads, and multiply-adds after which no more are tried.
STARTS = 8
TOTAL_WORK = 1e10
# Singular values of a head below this part of the largest are rounding.
ROUNDING = 1e-13


def lower_rank(
    tensor: NDArray,
    starts: list[HeadSet],
    head_rank: int,
    metric: Metric,
    patience: tuple[Patience, Patience],
    rng: np.random.Generator,
) -> LowRankHeads:
    """The best heads of rank ``head_rank`` found, as many at most as the first start has.

    patience : for each start, and for the best of them
    Guarantee: never worse than any start with keys cut to their largest singular values.
    """
    rough, careful = patience

    def followed(start: HeadSet) -> HeadDescent[LowRankHeads]:
        return descend(tensor, LowRankHeads.nearest(start, head_rank), metric, rough)

    best = min((followed(start.balanced()) for start in starts), key=lambda found: found.loss)
    spent = 0.0
    for _ in range(STARTS):
        if spent > TOTAL_WORK or best.loss <= rough.enough:
            break
        found = followed(random_heads(tensor, starts[0].counts, metric, rng))
        spent += found.work
        best = found if found.loss < best.loss else best
    return descend(tensor, best.heads, metric, careful).heads


def split_keys(heads: HeadSet, head_rank: int) -> HeadSet:
    """The same layer, each head as ceil(r / head_rank) heads with the same value."""
    left, sigma, right = np.linalg.svd(heads.key, full_matrices=False)
    cuts = [slice(at, at + head_rank) for at in range(0, sigma.shape[1], head_rank)]
    parts = [(left[:, :, at] * sigma[:, None, at]) @ right[:, at] for at in cuts]
    key = np.stack(parts, axis=1).reshape(-1, *heads.key.shape[1:])
    counts = tuple(len(cuts) * count for count in heads.counts)
    return replace(heads, value=np.repeat(heads.value, len(cuts), axis=0), key=key, counts=counts)


def split_ranks(compression: Compression, head_rank: int | None) -> Compression:
    """The same layer with heads of at most this rank: others are split (None: as it is)."""
    if head_rank is None:
        return compression
    parts = [_parts(attn, head_rank) for attn in compression.attn]
    source = [head for head, some in enumerate(parts) for _ in some]
    if len(source) == len(parts):
        return compression
    scales = compression.head_scales
    note = f" Split into {counted(len(source), 'head')} of rank at most {head_rank}."
    return replace(
        compression,
        attn=np.array([one for some in parts for one in some]),
        value=compression.value[source],
        head_scales=None if scales is None else scales[source],
        sentence=compression.sentence + note,
    )


def equal_units(matrices: NDArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Exponents of rows (..., n, 1) and columns (..., 1, m) of matrices, of about equal size.

    Divided by these powers of two, rows and columns are of size one: units of coordinates must not
    decide what is rounding.
    """
    rows = np.frexp(np.abs(matrices).max(axis=-1, keepdims=True))[1].astype(np.intp)
    columns = np.frexp(np.ldexp(np.abs(matrices), -rows).max(axis=-2, keepdims=True))[1]
    shift = (rows.max(axis=-2, keepdims=True) - columns.max(axis=-1, keepdims=True)) // 2
    return rows - shift, columns + shift


def _parts(attn: NDArray, head_rank: int) -> list[NDArray]:
    """Matrices of rank at most ``head_rank`` whose sum is ``attn`` (r, n_keys)."""
    rows, columns = equal_units(attn)
    left, sigma, right = np.linalg.svd(np.ldexp(attn, -rows - columns), full_matrices=False)
    rank = int(np.count_nonzero(sigma > ROUNDING * sigma[0]))
    if rank <= head_rank:
        return [attn]
    cuts = [slice(first, min(first + head_rank, rank)) for first in range(0, rank, head_rank)]
    return [np.ldexp((left[:, at] * sigma[at]) @ right[at], rows + columns) for at in cuts]
